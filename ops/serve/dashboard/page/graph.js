// The graph of processors and categories, updated in place.

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
  #status = null;

  constructor() {
    this.element = el("div", { class: "card scroll graph", role: "region", "aria-label": "Graph", tabindex: "0" });
    this.resizeObserver = new ResizeObserver(() => this.#status && this.#draw(this.#status));
    this.resizeObserver.observe(this.element);
  }

  close() {
    this.resizeObserver.disconnect();
  }

  update(status) {
    this.#status = status;
    this.#draw(status);
    this.#fill(status);
  }

  #fill(status) {
    const worst = worstOf(status.findings);
    for (const processor of status.processors) this.#updateCard(this.#cards.get(processor.processor), processor, worst.get(processor.processor));
  }

  #draw(status) {
    const room = this.element.clientWidth - 28; // without the padding
    const shape = JSON.stringify([room, status.processors.map(({ processor, inputs, outputs }) => [processor, inputs, outputs])]);
    if (shape === this.#shape || room <= 0) return;
    this.#shape = shape;
    this.#cards = new Map();
    const { nodes, edges } = graphOf(status.processors);
    const { layers, chains } = layered(nodes, edges);
    const layout = best(layers, room);
    const { at, width, height, down } = layout;
    const drawing = svg("svg", { width: width + 2, height: height + 2, viewBox: `-1 -1 ${width + 2} ${height + 2}`, role: "group", "aria-label": "Processors and categories" },
      arrowhead(),
      ...chains.map((chain) => svg("path", { class: "edge", d: curve(chain.map((id) => at.get(id)), down), "marker-end": "url(#tip)" })),
      ...nodes.map((node) => (node.processor ? this.#card(node, at.get(node.id)) : pill(node, at.get(node.id)))));
    this.element.replaceChildren(drawing);
    this.#fill(status);
  }

  #card(node, { x, y, width, height }) {
    const lines = [svg("text", { class: "line", x: x + 14, y: y + 38 }), svg("text", { class: "line state", x: x + 14, y: y + 54 })];
    const group = svg("g", { class: "processor" },
      svg("rect", { class: "body", x, y, width, height, rx: 6 }),
      svg("rect", { class: "mark", x: x + 4, y: y + 6, width: 4, height: height - 12, rx: 2 }),
      svg("text", { class: "title", x: x + 14, y: y + 20 }, shorten(node.processor.processor, width - 24, "600 12.5px")), ...lines);
    const label = svg("title");
    this.#cards.set(node.processor.processor, { group, lines, label });
    return svg("a", { href: `#/processor/${encodeURIComponent(node.processor.processor)}` }, label, group);
  }

  #updateCard(card, processor, severity) {
    if (!card) return;
    const isRunning = running(processor).length > 0;
    setAttribute(card.group, "class", ["processor", severity ?? (isRunning ? "" : "idle")].filter(Boolean).join(" "));
    setText(card.lines[0], `${throughput(processor.events_in_per_s)} in/s, ${throughput(processor.events_out_per_s)} out/s`);
    setText(card.lines[1], [isRunning ? "" : "not running", backlogText(processor, isRunning)].filter(Boolean).join(", "));
    const rates = `${rate(processor.events_in_per_s)} events/s in, ${rate(processor.events_out_per_s)} out`;
    setText(card.label, `${processor.processor}: ${rates}, backlog ${countOrUnknown(processor.backlog_events)}${severity ? `, ${severity}` : ""}`);
  }
}

const throughput = (number) => (number >= 1e4 ? short(number) : rate(number));

function backlogText(processor, isRunning) {
  if (processor.backlog_events === null) return "backlog unknown";
  if (!processor.backlog_events) return isRunning ? "no backlog" : "";
  const backlog = `backlog ${short(processor.backlog_events)}`;
  return isRunning ? `${backlog}, ${spanOrUnknown(processor.lag_s)}` : backlog;
}

export function worstOf(findings) {
  const worst = new Map();
  for (const finding of findings) if (!worst.has(finding.processor)) worst.set(finding.processor, finding.severity); // the most severe comes first
  return worst;
}

function graphOf(processors) {
  const categories = [...new Set(processors.flatMap((processor) => [...processor.inputs, ...processor.outputs]))];
  const nodes = [
    ...categories.map((name) => ({ id: `c ${name}`, name, width: Math.min(WIDEST_PILL, textWidth(name, "11px") + 20), height: PILL_HEIGHT })),
    ...processors.map((processor) => ({ id: `p ${processor.processor}`, processor, ...CARD })),
  ];
  const edges = processors.flatMap(({ processor, inputs, outputs }) => [
    ...inputs.map((name) => [`c ${name}`, `p ${processor}`]),
    ...outputs.map((name) => [`p ${processor}`, `c ${name}`]),
  ]);
  return { nodes, edges };
}

// From left to right if there is room, else from top to bottom. If neither fits, the one that needs less scrolling.
function best(layers, room) {
  const right = placed(layers, { down: false, along: 24, across: 14 });
  if (right.width <= room) return { ...right, down: false };
  const down = placed(layers, { down: true, along: 20, across: 14 });
  return down.width <= Math.max(room, right.width / 2) ? { ...down, down: true } : { ...right, down: false };
}

function pill(node, { x, y, width, height }) {
  return svg("g", { class: "category" }, svg("title", {}, node.name),
    svg("rect", { x, y, width, height, rx: height / 2 }),
    svg("text", { x: x + width / 2, y: y + 16, "text-anchor": "middle" }, shorten(node.name, width - 16, "11px")));
}

function arrowhead() {
  return svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 6 6", refX: 5.5, refY: 3, markerWidth: 6, markerHeight: 6, orient: "auto" },
    svg("path", { class: "tipmark", d: "M0 0 6 3 0 6z" })));
}

// A smooth path through boxes, from the end of each to the start of the next.
function curve(boxes, down) {
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

function textWidth(text, font) {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(pen.measureText(text).width);
}

// Shortens names in the middle, because they tend to differ at their ends.
function shorten(text, width, font) {
  if (textWidth(text, font) <= width) return text;
  for (let kept = text.length - 1; kept > 2; kept--) {
    const shortened = `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
    if (textWidth(shortened, font) <= width) return shortened;
  }
  return "…";
}
