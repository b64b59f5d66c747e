// Bars: the groups of an answer, or the intervals of a histogram. Widths are those of the values; texts are beside them.

import { el, svg } from "../shared/dom.js";
import { short } from "../shared/format.js";
import { SERIES } from "./view.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 10, 8, 22];
const LABEL_WIDTH = 110;

// Horizontal bars; with values of an earlier time range, a second, lighter bar for each group.
export function groupBars(answer, names) {
  const value = (values) => Math.max(0, Number(values?.[0].value ?? 0));
  const before = (at) => value(answer.compared[at]);
  const most = Math.max(...answer.rows.map((row, at) => Math.max(value(row.values), before(at)))) || 1;
  const bar = (part, kind) => {
    const picture = svg("svg", { class: `bar ${kind}`, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(svg("rect", { x: 0, y: 0, width: (100 * part) / most, height: 10 }));
    return picture;
  };
  const lines = answer.rows.map((row, at) => el("li", {},
    el("span", { class: "label" }, names[at]),
    el("span", { class: "track" }, bar(value(row.values), `s${(at % SERIES) + 1}`), ...(answer.compared.length ? [bar(before(at), "before")] : [])),
    el("span", { class: "number" }, row.values[0].value === null ? "NULL" : short(value(row.values)))));
  return el("figure", { class: "card" }, el("ol", { class: "bars", "aria-label": `${answer.aggregates[0]} by group` }, ...lines));
}

// Vertical bars of equal width; the last interval contains the largest hundredth of the values.
export function histogramBars(histogram) {
  const picture = svg("svg", { role: "img", "aria-label": `Distribution of ${histogram.column}, ${histogram.bins.length} intervals` });
  const observer = new ResizeObserver(() => draw(picture, histogram.bins));
  observer.observe(picture);
  return { element: el("figure", { class: "card series" }, picture), close: () => observer.disconnect() };
}

function draw(picture, bins) {
  const { width, height } = picture.getBoundingClientRect();
  if (!width) return;
  const most = Math.max(...bins.map((bin) => bin.events.value)) || 1;
  const x = (at) => LEFT + ((width - LEFT - RIGHT) * at) / bins.length;
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - value / most);
  const rules = [0, most / 2, most].flatMap((value) => [
    svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)),
  ]);
  const every = Math.max(1, Math.ceil(bins.length / Math.max(1, Math.floor((width - LEFT - RIGHT) / LABEL_WIDTH))));
  const labels = bins.flatMap((bin, at) => (at % every ? [] : [svg("text", { x: x(at), y: height - 6 }, short(bin.low))]));
  const bars = bins.map((bin, at) => {
    const bar = svg("rect", { class: "s1", x: x(at) + 0.5, y: y(bin.events.value), width: Math.max(1, x(1) - x(0) - 1), height: y(0) - y(bin.events.value) });
    bar.append(svg("title", {}, `${short(bin.low)} to ${short(bin.high)}: ${short(bin.events.value)}`));
    return bar;
  });
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(...rules, ...bars, ...labels);
}
