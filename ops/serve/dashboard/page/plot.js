// Line plots over time on a canvas. All plots of a page share one cursor.

import { el, setText } from "./dom.js";
import { clock, minute, rate, short, span } from "./format.js";

const GAP_MS = 20000; // no line across a longer time without samples
const LEFT = 56;
const BOTTOM = 20;
const TOP = 8;
export const COLORS = 8;
const TIP_LINES = 10;

export const colorClass = (at) => (at < COLORS ? `c${at + 1}` : "c-rest");
const variable = (at) => (at < COLORS ? `--s${at + 1}` : "--s-rest");

const cursor = { ms: null, plots: new Set() };

function moveCursor(ms) {
  cursor.ms = ms;
  for (const plot of cursor.plots) plot.draw();
}

export class Plot {
  // scale: the formats of values and of the axis, and the ends of the axis.
  // legend: whether another part of the page contains the legend.
  constructor(title, scale, { legend = false } = {}) {
    this.title = title;
    this.legend = legend;
    this.format = scale.format;
    this.above = scale.above;
    this.axis = scale.axis;
    this.shown = { times: [], series: [], spanMs: 300000, marks: [] };
    this.latest = el("span", { class: "latest" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.canvas = el("canvas", { role: "img", on: { pointermove: (event) => this.#onPointer(event), pointerleave: () => moveCursor(null) } });
    this.element = el("figure", { class: "card" }, el("figcaption", {}, el("b", {}, title), this.latest), this.canvas, this.tip);
    this.resizeObserver = new ResizeObserver(() => this.draw());
    this.resizeObserver.observe(this.canvas);
    cursor.plots.add(this);
  }

  close() {
    this.resizeObserver.disconnect();
    cursor.plots.delete(this);
  }

  // series: [{name, color, values}]; one value per time, null if unknown
  // marks: [{ms, text}], events to mark with vertical lines
  update(times, series, spanMs, marks = []) {
    this.shown = { times, series, spanMs, marks };
    const last = series.slice(-COLORS).map((line) => `${line.name} ${formatted(this.format, line.values[times.length - 1])}`);
    if (marks.length) last.push(`last change: ${marks[marks.length - 1].text} at ${clock(marks[marks.length - 1].ms)}`);
    this.canvas.setAttribute("aria-label", `${this.title}: ${last.join(", ") || "no value yet"}`);
    this.#showNames(series, times.length - 1);
    this.draw();
  }

  // Without a legend, shows the names of the lines beside the title, with their latest values.
  #showNames(series, at) {
    if (this.legend) return;
    if (this.latest.childElementCount !== series.length) {
      this.latest.replaceChildren(...series.map((line) => el("span", {}, el("i", { class: colorClass(line.color) }), el("b"))));
    }
    series.forEach((line, index) => setText(this.latest.children[index].lastChild, `${series.length > 1 ? `${line.name} ` : ""}${formatted(this.format, line.values[at])}`));
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(box.width * scale), Math.round(box.height * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    const frame = this.#frame(box);
    const style = getComputedStyle(this.canvas);
    this.#axes(pen, frame, style);
    this.shown.series.forEach((series) => drawLine(pen, frame, this.shown.times, series.values, style.getPropertyValue(variable(series.color))));
    this.#marks(pen, frame, style);
    this.#cursor(pen, frame, style);
  }

  // Draws the marks. A text that would cover another one is left out: the tip shows it.
  #marks(pen, frame, style) {
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "top";
    pen.strokeStyle = pen.fillStyle = style.getPropertyValue("--note");
    pen.setLineDash([3, 3]);
    let free = LEFT;
    for (const { ms, text } of [...this.shown.marks].sort((left, right) => left.ms - right.ms)) {
      const x = Math.round(frame.x(ms)) + 0.5;
      if (x < LEFT) continue;
      drawRule(pen, x, TOP, x, TOP + frame.high);
      const wide = pen.measureText(text).width;
      const start = Math.min(x + 4, LEFT + frame.wide - wide);
      if (start < free) continue;
      pen.textAlign = "left";
      pen.fillText(text, start, TOP + 1);
      free = start + wide + 8;
    }
    pen.setLineDash([]);
  }

  #frame(box) {
    const { times, series, spanMs } = this.shown;
    const end = times.length ? times[times.length - 1] : Date.now();
    const from = firstSince(times, end - spanMs);
    let most = 0;
    for (const line of series) for (let at = from; at < line.values.length; at++) most = Math.max(most, line.values[at] ?? 0);
    const top = this.above(most);
    const [wide, high] = [box.width - LEFT - 6, box.height - TOP - BOTTOM];
    return { end, from, spanMs, top, wide, high,
      x: (ms) => LEFT + wide * (1 - (end - ms) / spanMs),
      y: (value) => TOP + high * (1 - value / top) };
  }

  #axes(pen, frame, style) {
    pen.font = `11px ${style.fontFamily}`;
    pen.lineWidth = 1;
    pen.strokeStyle = style.getPropertyValue("--edge");
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (let part = 0; part <= 2; part++) {
      const y = Math.round(frame.y((frame.top * part) / 2)) + 0.5;
      drawRule(pen, LEFT, y, LEFT + frame.wide, y);
      pen.fillText(this.axis((frame.top * part) / 2), LEFT - 7, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "alphabetic";
    const step = frame.spanMs / 5;
    for (let ms = Math.ceil((frame.end - frame.spanMs) / step) * step; ms <= frame.end; ms += step) {
      const x = Math.min(Math.max(frame.x(ms), LEFT + 14), LEFT + frame.wide - 14);
      pen.fillText(minute(ms), x, TOP + frame.high + 15);
    }
  }

  #cursor(pen, frame, style) {
    const { times, series } = this.shown;
    const at = cursor.ms === null ? -1 : nearest(times, cursor.ms);
    this.tip.hidden = at < frame.from || !series.length;
    if (this.tip.hidden) return;
    const x = frame.x(times[at]);
    pen.strokeStyle = style.getPropertyValue("--quiet");
    drawRule(pen, Math.round(x) + 0.5, TOP, Math.round(x) + 0.5, TOP + frame.high);
    const known = series.filter((line) => line.values[at] !== null && line.values[at] !== undefined);
    const largest = known.length > TIP_LINES ? [...known].sort((left, right) => right.values[at] - left.values[at]) : [...known].sort((left, right) => left.color - right.color);
    const marked = this.shown.marks.filter(({ ms }) => Math.abs(frame.x(ms) - x) < 6).slice(0, TIP_LINES);
    const rows = largest.slice(0, TIP_LINES)
      .map((line) => el("div", {}, el("i", { class: colorClass(line.color) }), line.name, el("b", {}, this.format(line.values[at]))));
    const more = known.length - rows.length;
    if (more > 0) rows.push(el("div", { class: "quiet" }, `and ${more} with less`));
    this.tip.replaceChildren(el("div", { class: "quiet" }, clock(times[at])), ...rows, ...marked.map(({ text }) => el("div", {}, text)));
    const left = x > LEFT + frame.wide / 2 ? x - this.tip.offsetWidth - 2 : x + 24;
    this.tip.style.left = `${Math.max(0, left)}px`;
  }

  #onPointer(event) {
    const box = this.canvas.getBoundingClientRect();
    const frame = this.#frame(box);
    moveCursor(frame.end - frame.spanMs * (1 - (event.clientX - box.left - LEFT) / frame.wide));
  }
}

// A line without axes, for a row of a table.
export function spark(canvas, times, values, spanMs) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [90, 26];
  if (canvas.width !== width * scale) Object.assign(canvas, { width: width * scale, height: height * scale });
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const end = times.length ? times[times.length - 1] : 0;
  const from = firstSince(times, end - spanMs);
  const top = Math.max(1, ...values.slice(from).map((value) => value ?? 0));
  const frame = { from, x: (ms) => width * (1 - (end - ms) / spanMs), y: (value) => 2 + (height - 4) * (1 - value / top) };
  drawLine(pen, frame, times, values, getComputedStyle(canvas).getPropertyValue("--s1"));
}

function drawLine(pen, frame, times, values, color) {
  pen.strokeStyle = color;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.beginPath();
  let before = null;
  for (let at = frame.from; at < times.length; at++) {
    const value = values[at];
    if (value === null || value === undefined) {
      before = null;
      continue;
    }
    const [x, y] = [frame.x(times[at]), frame.y(Math.max(0, value))];
    if (before === null || times[at] - before > GAP_MS) pen.moveTo(x, y);
    else pen.lineTo(x, y);
    before = times[at];
  }
  pen.stroke();
}

function drawRule(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

const formatted = (format, value) => (value === null || value === undefined ? "–" : format(value));

function firstSince(times, ms) {
  const at = times.findIndex((time) => time >= ms);
  return at < 0 ? times.length : at;
}

function nearest(times, ms) {
  let best = -1;
  times.forEach((time, at) => {
    if (best < 0 || Math.abs(time - ms) < Math.abs(times[best] - ms)) best = at;
  });
  return best;
}

// The ends of axes are round numbers, whose halves are round as well.
function roundAbove(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 10)));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 1.02) ?? 20 * power;
}

const ENDS_S = [10, 20, 60, 240, 600, 1200, 3600, 4 * 3600, 8 * 3600, 24 * 3600, 2 * 86400, 4 * 86400, 8 * 86400, 20 * 86400, 40 * 86400];

function longAbove(seconds) {
  return ENDS_S.find((end) => end >= seconds * 1.02) ?? roundAbove(seconds / 86400) * 86400;
}

const shortSpan = (seconds) => (seconds >= 2 * 86400 ? `${short(seconds / 86400)} d` : span(seconds));

export const COUNTS = { format: rate, above: roundAbove, axis: short };
export const SPANS = { format: span, above: longAbove, axis: shortSpan };
