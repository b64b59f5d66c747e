// Where the parts of a graph lie: layers from what nothing writes to what nothing reads, and an order within each.

const SWEEPS = 6;

// nodes: [{id, width, height}], edges: [[from, to]]. Returns layers of {id, node or null}: null where a long edge passes through,
// and chains: for each edge the ids that it passes.
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

// The longest way from the start; in a circle, as far as one round.
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
  return closed(depths);
}

// No layer is empty, whatever a circle has done to them.
function closed(depths) {
  const used = [...new Set(depths.values())].sort((a, b) => a - b);
  return new Map([...depths].map(([id, depth]) => [id, used.indexOf(depth)]));
}

// Each is moved to the middle of its neighbours, forth and back, so that few edges cross.
function order(layers, chains) {
  const neighbours = new Map();
  const join = (one, other) => neighbours.set(one, [...(neighbours.get(one) ?? []), other]);
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
      const middle = (place) => {
        const near = neighbours.get(place.id) ?? [];
        return near.length ? near.reduce((sum, id) => sum + places.get(id), 0) / near.length : places.get(place.id);
      };
      const by = new Map(layer.map((place) => [place.id, middle(place)]));
      layer.sort((one, other) => by.get(one.id) - by.get(other.id));
      layer.forEach((place, at) => places.set(place.id, (at + 0.5) / layer.length));
    }
  }
}

// Returns {width, height, at: id -> {x, y, width, height}}, left to right or from the top down.
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
