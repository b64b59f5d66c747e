// The form of a query. Each change is a new view.

import { el } from "../shared/dom.js";
import { CHARTS, COMPARISONS, FUNCTIONS, hasRange, INTERVALS, isArchived, OPERATORS, RANGES, shortName } from "./view.js";

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

export function question(shown, tables, show) {
  const view = { ...shown }; // with the changes since: a user may make several before the form is drawn again
  const table = tables.find((each) => each.table === view.table);
  const names = table.columns.map((column) => column.name);
  const change = (part) => show({ ...Object.assign(view, part) });
  const group = (at) => select(`Group by ${at + 1}`, [...NONE, ...names], view.by[at] ?? "",
    (column) => change({ by: Object.assign([...view.by], { [at]: column }).filter(Boolean) }));
  const moment = (label, name) => {
    const box = el("input", { type: "datetime-local", step: 1, "aria-label": label, value: view[name], on: { change: () => change({ [name]: box.value, every: "" }) } });
    return labeled(label.toLowerCase(), box);
  };
  const first = el("div", { class: "line" },
    labeled("Table", tableSelect(tables, view, show)),
    labeled("Time", select("Time range", RANGES, view.last, (last) => change({ last, every: "" }))),
    ...(view.last === "between" ? [moment("From", "from"), moment("To", "to")] : []),
    labeled("by", select("Time of", [["", "event time"], ["arrival", "arrival"]], view.arrival ? "arrival" : "", (time) => change({ arrival: Boolean(time) }))),
    ...(view.chart === "map" ? [] : [labeled("Interval", select("Interval", [["", "automatic"], ...INTERVALS], view.every, (every) => change({ every })))]),
    labeled("as", select("Chart", CHARTS, view.chart, (chart) => change({ chart, ...(chart === "map" ? placed(view, table) : {}) }))),
    ...(hasRange(view) ? [labeled("compared with", select("Compare with", COMPARISONS, view.compare, (compare) => change({ compare })))] : []));
  const second = el("div", { class: "line" },
    labeled("Show", select("Aggregate", FUNCTIONS, view.f, (f) => change({ f, of: view.of || (f === "count" ? "" : firstNumber(table)) }))),
    labeled("of", select("Column of the aggregate", [["", "events"], ...names], view.of, (of) => change({ of }))),
    ...(view.f === "share" ? [
      select("Operator of the share", OPERATORS, view.is || "is not null", (is) => change({ is })),
      valueBox("Value of the share", { op: view.is || "is not null", value: view.than, isOpen: view.isShareOpen }, (than) => change({ than }))] : []),
    ...Array.from({ length: Math.min(GROUPS, view.by.length + 1) }, (_, at) => labeled(at ? "and" : "by", group(at))),
    ...(view.chart === "map" ? [["Latitude", "latitude"], ["Longitude", "longitude"]].map(([label, name]) =>
      labeled(label.toLowerCase(), select(label, [...NONE, ...numbers(table)], view[name], (column) => change({ [name]: column })))) : []));
  return el("form", { class: "card question", "aria-label": "Query", on: { submit: (event) => event.preventDefault() } },
    first, second, filters(view, names, change));
}

function valueBox(label, { op, value, isOpen }, changed) {
  const box = el("input", { "aria-label": label, value, placeholder: isOpen ? "not applied yet" : null, hidden: op.startsWith("is "), on: { change: () => changed(box.value) } });
  return box;
}

const numbers = (table) => table.columns.filter((column) => column.kind === "number").map((column) => column.name);
const firstNumber = (table) => numbers(table)[0] ?? "";

// The newest events, and the archived days.
function tableSelect(tables, view, show) {
  const pick = (table) => show({ table, last: tables.find((each) => each.table === table).days === null ? view.last.replace("between", "") : null, from: "", to: "", f: "count", of: "", is: "", than: "", by: [], every: "", compare: "", chart: view.chart === "map" ? "" : view.chart, latitude: "", longitude: "", where: [] });
  const box = el("select", { "aria-label": "Table", on: { change: () => pick(box.value) } },
    ...[["newest events", false], ["all days", true]].map(([label, archived]) => {
      const options = tables.filter((each) => isArchived(each) === archived)
        .map(({ table }) => el("option", { value: table, selected: table === view.table }, archived ? shortName(table) : table));
      return options.length ? el("optgroup", { label }, ...options) : null;
    }).filter(Boolean));
  return box;
}

// The columns of places, by their names: a country, or latitude and longitude. Groups of countries are places already.
function placed(view, table) {
  if (view.by.length === 1 && /countr|nation/i.test(view.by[0])) return {};
  const named = (pattern, columns) => columns.find((name) => pattern.test(name)) ?? "";
  const [latitude, longitude] = [named(/(^|[._])lat(itude)?$/i, numbers(table)), named(/(^|[._])(lon|lng|long|longitude)$/i, numbers(table))];
  if (view.latitude || (latitude && longitude)) return view.latitude ? {} : { latitude, longitude };
  const country = named(/countr|nation/i, table.columns.filter((column) => column.kind === "text").map((column) => column.name));
  return view.by.length || !country ? {} : { by: [country] };
}

function filters(view, names, change) {
  const set = (at, part) => change({ where: view.where.map((each, index) => (index === at ? { ...each, ...part } : each)) });
  const lines = view.where.map((each, at) => {
    return el("div", { class: "line" },
      select(`Column of filter ${at + 1}`, names, each.column, (column) => set(at, { column })),
      select(`Operator of filter ${at + 1}`, OPERATORS, each.op, (op) => set(at, { op })),
      valueBox(`Value of filter ${at + 1}`, each, (value) => set(at, { value })),
      el("button", { type: "button", "aria-label": `Remove filter ${at + 1}`, on: { click: () => change({ where: view.where.filter((_, index) => index !== at) }) } }, "Remove"));
  });
  const add = el("button", { type: "button", on: { click: () => change({ where: [...view.where, { column: names[0], op: "is not null", value: "" }] }) } }, "Add a filter");
  return el("fieldset", {}, el("legend", {}, "Where"), ...lines, el("div", { class: "line" }, add));
}
