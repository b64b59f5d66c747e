// The form of a query. Each change is a new view.

import { el } from "../shared/dom.js";
import { FUNCTIONS, INTERVALS, OPERATORS, RANGES } from "./view.js";

const GROUPS = 3;
const NONE = [["", "–"]];

function select(label, options, value, changed) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  if (!pairs.some(([each]) => each === value)) pairs.push([value, value]);
  const box = el("select", { "aria-label": label, on: { change: () => changed(box.value) } },
    ...pairs.map(([each, text]) => el("option", { value: each, selected: each === value }, text)));
  return box;
}

const labeled = (text, box) => el("label", {}, text, box);

export function question(view, tables, show) {
  const table = tables.find((each) => each.table === view.table);
  const names = table.columns.map((column) => column.name);
  const change = (part) => show({ ...view, ...part });
  const group = (at) => select(`Group by ${at + 1}`, [...NONE, ...names], view.by[at] ?? "",
    (column) => change({ by: Object.assign([...view.by], { [at]: column }).filter(Boolean) }));
  const first = el("div", { class: "line" },
    labeled("Table", select("Table", tables.map((each) => each.table), view.table, (name) => show({ table: name, last: view.last, f: "count", of: "", by: [], every: "", where: [] }))),
    labeled("Time", select("Time range", RANGES, view.last, (last) => change({ last, every: "" }))),
    labeled("by", select("Time of", [["", "event time"], ["arrival", "arrival"]], view.arrival ? "arrival" : "", (time) => change({ arrival: Boolean(time) }))),
    labeled("Interval", select("Interval", [["", "automatic"], ...INTERVALS], view.every, (every) => change({ every }))));
  const second = el("div", { class: "line" },
    labeled("Show", select("Aggregate", FUNCTIONS, view.f, (f) => change({ f, of: view.of || (f === "count" ? "" : firstNumber(table)) }))),
    labeled("of", select("Column of the aggregate", [["", "events"], ...names], view.of, (of) => change({ of }))),
    ...Array.from({ length: Math.min(GROUPS, view.by.length + 1) }, (_, at) => labeled(at ? "and" : "by", group(at))));
  return el("form", { class: "card question", "aria-label": "Query", on: { submit: (event) => event.preventDefault() } },
    first, second, filters(view, names, change));
}

const firstNumber = (table) => table.columns.find((column) => column.kind === "number")?.name ?? "";

function filters(view, names, change) {
  const set = (at, part) => change({ where: view.where.map((each, index) => (index === at ? { ...each, ...part } : each)) });
  const lines = view.where.map((each, at) => {
    const value = el("input", { "aria-label": `Value of filter ${at + 1}`, value: each.value, hidden: each.op.startsWith("is "), on: { change: () => set(at, { value: value.value }) } });
    return el("div", { class: "line" },
      select(`Column of filter ${at + 1}`, names, each.column, (column) => set(at, { column })),
      select(`Operator of filter ${at + 1}`, OPERATORS, each.op, (op) => set(at, { op })),
      value,
      el("button", { type: "button", "aria-label": `Remove filter ${at + 1}`, on: { click: () => change({ where: view.where.filter((_, index) => index !== at) }) } }, "Remove"));
  });
  const add = el("button", { type: "button", on: { click: () => change({ where: [...view.where, { column: names[0], op: "is not null", value: "" }] }) } }, "Add a filter");
  return el("fieldset", {}, el("legend", {}, "Where"), ...lines, el("div", { class: "line" }, add));
}
