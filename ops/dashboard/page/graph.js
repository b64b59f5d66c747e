// The processors and the categories between them, as a picture that is changed in place.

import { el, setAttribute, setText, svg } from "./dom.js";
import { countOrUnknown, rate, short, spanOrUnknown } from "./format.js";
import { layered, placed } from "./layers.js";
import { running } from "./processor_status.js";

const CARD = { width: 164, height: 64 };
const PILL_HEIGHT = 24;
const WIDEST_PILL = 150;
const pen = document.createElement("canvas").getContext("2d");

export class Graph {
  #shape = "";
  #cards = new Map();
  #drawn = null;

  constructor() {
    this.element = el("div", { class: "card scroll graph", role: "region", "aria-label": "Graph", tabindex: "0" });
    this.resized = new ResizeObserver(() => this.#drawn && this.#draw(this.#drawn));
    this.resized.observe(this.element);
  }

  close() {
    this.resized.disconnect();
  }

  update(picture) {
    this.#drawn = picture;
    this.#draw(picture);
    this.#fill(picture);
  }

  #fill(picture) {
    const worst = worstOf(picture.findings);
    for (const one of picture.processors) this.#change(this.#cards.get(one.processor), one, worst.get(one.processor));
  }

  #draw(picture) {
    const room = this.element.clientWidth - 28;
    const shape = JSON.stringify([room, picture.processors.map((one) => [one.processor, one.inputs, one.outputs])]);
    if (shape === this.#shape || room <= 0) return;
    this.#shape = shape;
    this.#cards = new Map();
    const { nodes, edges } = parts(picture.processors);
    const { layers, chains } = layered(nodes, edges);
    const layout = best(layers, room);
    const { at, width, height, down } = layout;
    const shown = svg("svg", { width: width + 2, height: height + 2, viewBox: `-1 -1 ${width + 2} ${height + 2}`, role: "group", "aria-label": "Processors and categories" },
      arrowhead(),
      ...chains.map((chain) => svg("path", { class: "edge", d: way(chain.map((id) => at.get(id)), down), "marker-end": "url(#tip)" })),
      ...nodes.map((node) => (node.processor ? this.#card(node, at.get(node.id)) : pill(node, at.get(node.id)))));
    this.element.replaceChildren(shown);
    this.#fill(picture);
  }

  #card(node, { x, y, width, height }) {
    const lines = [svg("text", { class: "line", x: x + 14, y: y + 38 }), svg("text", { class: "line state", x: x + 14, y: y + 54 })];
    const group = svg("g", { class: "processor" },
      svg("rect", { class: "body", x, y, width, height, rx: 6 }),
      svg("rect", { class: "mark", x: x + 4, y: y + 6, width: 4, height: height - 12, rx: 2 }),
      svg("text", { class: "title", x: x + 14, y: y + 20 }, cut(node.processor.processor, width - 24, "600 12.5px")), ...lines);
    const label = svg("title");
    this.#cards.set(node.processor.processor, { group, lines, label });
    return svg("a", { href: `#/processor/${encodeURIComponent(node.processor.processor)}` }, label, group);
  }

  #change(card, one, severity) {
    if (!card) return;
    const runs = running(one).length > 0;
    const left = one.behind === null ? "backlog unknown" : one.behind ? `backlog ${short(one.behind)}` : "";
    const state = runs ? (one.behind ? `${left}, ${spanOrUnknown(one.behind_s)}` : left || "no backlog") : left ? `not running, ${left}` : "not running";
    setAttribute(card.group, "class", ["processor", severity ?? (runs ? "" : "idle")].filter(Boolean).join(" "));
    setText(card.lines[0], `${flow(one.rate_in)} in/s, ${flow(one.rate_out)} out/s`);
    setText(card.lines[1], state);
    setText(card.label, `${one.processor}: ${rate(one.rate_in)} events/s in, ${rate(one.rate_out)} out, backlog ${countOrUnknown(one.behind)}${severity ? `, ${severity}` : ""}`);
  }
}

const flow = (number) => (number >= 1e4 ? short(number) : rate(number));

export function worstOf(findings) {
  const worst = new Map();
  for (const finding of findings) if (!worst.has(finding.processor)) worst.set(finding.processor, finding.severity); // the worst come first
  return worst;
}

function parts(processors) {
  const categories = [...new Set(processors.flatMap((one) => [...one.inputs, ...one.outputs]))];
  const nodes = [
    ...categories.map((name) => ({ id: `c ${name}`, name, width: Math.min(WIDEST_PILL, measured(name, "11px") + 20), height: PILL_HEIGHT })),
    ...processors.map((processor) => ({ id: `p ${processor.processor}`, processor, ...CARD })),
  ];
  const edges = processors.flatMap((one) => [
    ...one.inputs.map((name) => [`c ${name}`, `p ${one.processor}`]),
    ...one.outputs.map((name) => [`p ${one.processor}`, `c ${name}`]),
  ]);
  return { nodes, edges };
}

// Left to right where there is room, else from the top down; where neither fits, whatever has to be scrolled less.
function best(layers, room) {
  const right = placed(layers, { down: false, along: 24, across: 14 });
  if (right.width <= room) return { ...right, down: false };
  const down = placed(layers, { down: true, along: 20, across: 14 });
  return down.width <= Math.max(room, right.width / 2) ? { ...down, down: true } : { ...right, down: false };
}

function pill(node, { x, y, width, height }) {
  return svg("g", { class: "category" }, svg("title", {}, node.name),
    svg("rect", { x, y, width, height, rx: height / 2 }),
    svg("text", { x: x + width / 2, y: y + 16, "text-anchor": "middle" }, cut(node.name, width - 16, "11px")));
}

function arrowhead() {
  return svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 6 6", refX: 5.5, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" },
    svg("path", { class: "tipmark", d: "M0 0 6 3 0 6z" })));
}

// A smooth way through boxes, from the end of each to the beginning of the next.
function way(boxes, down) {
  const leave = (box) => (down ? [box.x + box.width / 2, box.y + box.height] : [box.x + box.width, box.y + box.height / 2]);
  const enter = (box) => (down ? [box.x + box.width / 2, box.y] : [box.x, box.y + box.height / 2]);
  let path = `M${leave(boxes[0]).join(" ")}`;
  for (let at = 1; at < boxes.length; at++) {
    const [[x1, y1], [x2, y2]] = [leave(boxes[at - 1]), enter(boxes[at])];
    path += down ? `C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}` : `C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
    if (at < boxes.length - 1) path += `L${leave(boxes[at]).join(" ")}`;
  }
  return path;
}

function measured(text, font) {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(pen.measureText(text).width);
}

// Names are cut in the middle: they tend to differ at their ends.
function cut(text, width, font) {
  if (measured(text, font) <= width) return text;
  for (let kept = text.length - 1; kept > 2; kept--) {
    const shown = `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
    if (measured(shown, font) <= width) return shown;
  }
  return "…";
}
