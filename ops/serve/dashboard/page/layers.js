// The layout of a graph: layers from its sources to its sinks, and an order within each layer.

const SWEEPS = 6;

// nodes: [{id, width, height}], edges: [[from, to]]. Returns layers of {id, node}: the node is null for a long edge that passes through.
// Also returns chains: for each edge, the ids on its path.
export function layered(nodes, edges) {
  const depths = depthsOf(nodes, edges);
  const layers = [];
  const put = (depth, place) => (layers[depth] ??= []).push(place);
  for (const node of nodes) put(depths.get(node.id), { id: node.id, node });
  const chains = edges.map(([from, to]) => {
    const chain = [from];
    for (let depth = depths.get(from) + 1; depth < depths.get(to); depth++) {
      chain.push(`${from} ${to} ${depth}`);
      put(depth, { id: chain[chain.length - 1], node: null });
    }
    return [...chain, to];
  });
  order(layers, chains);
  return { layers, chains };
}

// The length of the longest path from a source. In a cycle, at most the number of nodes.
function depthsOf(nodes, edges) {
  const depths = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round++) {
    let moved = false;
    for (const [from, to] of edges) {
      if (depths.get(to) <= depths.get(from) && depths.get(from) + 1 < nodes.length) {
        depths.set(to, depths.get(from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return withoutGaps(depths);
}

// Renumbers depths so that no layer is empty. A cycle may leave gaps.
function withoutGaps(depths) {
  const used = [...new Set(depths.values())].sort((a, b) => a - b);
  return new Map([...depths].map(([id, depth]) => [id, used.indexOf(depth)]));
}

// Moves each place to the mean position of its neighbours, in both directions, so that few edges cross.
function order(layers, chains) {
  const neighbours = new Map();
  const join = (from, to) => neighbours.set(from, [...(neighbours.get(from) ?? []), to]);
  for (const chain of chains) {
    for (let at = 1; at < chain.length; at++) {
      join(chain[at], chain[at - 1]);
      join(chain[at - 1], chain[at]);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const places = new Map();
    for (const layer of layers) layer.forEach((place, at) => places.set(place.id, (at + 0.5) / layer.length));
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const mean = (place) => {
        const near = neighbours.get(place.id) ?? [];
        return near.length ? near.reduce((sum, id) => sum + places.get(id), 0) / near.length : places.get(place.id);
      };
      const means = new Map(layer.map((place) => [place.id, mean(place)]));
      layer.sort((left, right) => means.get(left.id) - means.get(right.id));
      layer.forEach((place, at) => places.set(place.id, (at + 0.5) / layer.length));
    }
  }
}

// Returns {width, height, at: id -> {x, y, width, height}}, from left to right, or from top to bottom with `down`.
export function placed(layers, { down, along, across }) {
  const size = (place) => (place.node ? { width: place.node.width, height: place.node.height } : { width: 6, height: 6 });
  const [deep, broad] = down ? ["height", "width"] : ["width", "height"];
  const breadths = layers.map((layer) => layer.reduce((sum, place) => sum + size(place)[broad] + across, -across));
  const whole = Math.max(...breadths);
  const at = new Map();
  let front = 0;
  layers.forEach((layer, number) => {
    const depth = Math.max(...layer.map((place) => size(place)[deep]));
    let side = (whole - breadths[number]) / 2;
    for (const place of layer) {
      const own = size(place);
      const middle = front + (depth - own[deep]) / 2;
      at.set(place.id, { ...own, x: down ? side : middle, y: down ? middle : side });
      side += own[broad] + across;
    }
    front += depth + along;
  });
  return { at, width: down ? whole : front - along, height: down ? front - along : whole };
}
