// A time series as SVG: one line for each group, dashed for an earlier time range. A line ends where an interval has no events.
// A click on an interval, or a drag over several, chooses their time.

import { el, svg } from "../shared/dom.js";
import { short, time } from "../shared/format.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 10, 8, 22];
const LABEL_WIDTH = 150;

export function series(answer, names, everyMs, choose) {
  const picture = svg("svg", { role: "img", "aria-label": `${answer.aggregates[0]} over time, ${names.length} lines` });
  let timeAt = null;
  const observer = new ResizeObserver(() => { timeAt = draw(picture, answer, everyMs) ?? timeAt; });
  observer.observe(picture);
  choosable(picture, (place) => timeAt?.(place), (from, to) => choose(Math.floor(from / everyMs) * everyMs, (Math.floor(to / everyMs) + 1) * everyMs));
  return { element: el("figure", { class: "card series" }, picture), close: () => observer.disconnect() };
}

// Marks the range under a drag, and reports its times at the end.
function choosable(picture, timeAt, choose) {
  let [begin, mark] = [null, null];
  const place = (event) => Math.max(LEFT, event.clientX - picture.getBoundingClientRect().left);
  const end = () => { mark?.remove(); [begin, mark] = [null, null]; };
  picture.addEventListener("pointerdown", (event) => {
    begin = place(event);
    mark = svg("rect", { class: "chosen", y: TOP, height: Math.max(0, picture.getBoundingClientRect().height - TOP - BOTTOM), x: begin, width: 1 });
    picture.append(mark);
  });
  picture.addEventListener("pointermove", (event) => {
    if (begin === null) return;
    mark.setAttribute("x", Math.min(begin, place(event)));
    mark.setAttribute("width", Math.max(1, Math.abs(place(event) - begin)));
  });
  picture.addEventListener("pointerup", (event) => {
    const found = begin === null ? [] : [begin, place(event)].map(timeAt).sort((a, b) => a - b);
    end();
    if (found.length && found[0] !== undefined) choose(...found);
  });
  for (const name of ["pointercancel", "pointerleave"]) picture.addEventListener(name, end);
}

// Returns the function from a place in the picture to its time.
function draw(picture, answer, everyMs) {
  const { width, height } = picture.getBoundingClientRect();
  const hasValue = (point) => point.values[0].value !== null;
  const [points, before] = [answer.points.filter(hasValue), answer.compared_points.filter(hasValue)];
  if (!width || !points.length) return null;
  const values = [...points, ...before].map((point) => Number(point.values[0].value));
  const [low, high] = [Math.min(0, ...values), Math.max(...values)];
  const starts = [...points, ...before].map((point) => point.start_ms);
  const from = Math.min(...starts);
  const to = Math.max(...starts, from + everyMs);
  const x = (ms) => LEFT + ((width - LEFT - RIGHT) * (ms - from)) / (to - from);
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - (value - low) / (high - low || 1));
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(...axes(width, height, { low, high, from, to }, x, y),
    ...answer.rows.flatMap((_, at) => line(before.filter((point) => point.series === at), at, everyMs, x, y, " before")),
    ...answer.rows.flatMap((_, at) => line(points.filter((point) => point.series === at), at, everyMs, x, y, "")));
  return (place) => from + ((to - from) * (place - LEFT)) / (width - LEFT - RIGHT);
}

function axes(width, height, { low, high, from, to }, x, y) {
  const rules = [low, (low + high) / 2, high].flatMap((value) => [
    svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)),
  ]);
  const labels = Math.max(2, Math.floor((width - LEFT) / LABEL_WIDTH));
  const ticks = Array.from({ length: labels }, (_, at) => from + ((to - from) * at) / (labels - 1));
  return [...rules, ...ticks.map((ms, at) =>
    svg("text", { x: x(ms), y: height - 6, "text-anchor": at === 0 ? "start" : at === labels - 1 ? "end" : "middle" }, time(Math.round(ms)).slice(5)))];
}

function line(points, at, everyMs, x, y, kind) {
  const runs = [];
  points.forEach((point, index) => {
    if (!index || point.start_ms - points[index - 1].start_ms > everyMs) runs.push([]);
    runs[runs.length - 1].push(`${x(point.start_ms).toFixed(1)},${y(Number(point.values[0].value)).toFixed(1)}`);
  });
  return runs.map((run) => {
    if (run.length > 1) return svg("polyline", { class: `s${at + 1}${kind}`, points: run.join(" ") });
    const [cx, cy] = run[0].split(",");
    return svg("circle", { class: `s${at + 1}${kind}`, cx, cy, r: 2.2 });
  });
}
