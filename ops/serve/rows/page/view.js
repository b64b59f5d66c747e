// The query of a view, and its address.

export const FUNCTIONS = ["count", "sum", "avg", "min", "max", "p50", "p95", "p99", "distinct", "share"];
export const OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "starts with", "is null", "is not null"];
export const RANGES = [["", "all times"], ["5m", "last 5 min"], ["15m", "last 15 min"], ["1h", "last hour"], ["6h", "last 6 h"], ["1d", "last day"], ["7d", "last 7 days"], ["30d", "last 30 days"], ["between", "between …"]];
export const INTERVALS = ["1s", "5s", "10s", "30s", "1m", "5m", "10m", "30m", "1h", "6h", "1d"];
export const COMPARISONS = [["", "nothing"], ["1h", "hour before"], ["1d", "day before"], ["7d", "week before"]];
export const CHARTS = [["", "time series"], ["bars", "bars"], ["histogram", "histogram"], ["map", "world map"]];
export const SERIES = 7;
const WAREHOUSE = "warehouse/";
const PLACES = 300; // groups of a map
const BARS = 30; // groups as bars
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };
const POINTS = 120; // an automatic interval gives at most as many

export const secondsOf = (text) => Number(text.slice(0, -1)) * SECONDS[text.slice(-1)];

// Whether a table has the archived days, not the newest events.
export const isArchived = (table) => table.days !== null;
export const shortName = (name) => (name.startsWith(WAREHOUSE) ? name.slice(WAREHOUSE.length) : name);

// A view: {table, missing, last, from, to, arrival, f, of, is, than, by: [column], every, compare, chart, latitude, longitude, where: [condition]}
// A condition: {column, op, value, isOpen}, where isOpen says that its value has not been typed yet.
export function viewOf(hash, tables) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const table = tables.find((each) => each.table === given.get("table")) ?? tables[0];
  const [columns, ops, values] = ["c", "o", "v"].map((name) => given.getAll(name));
  const text = (name) => given.get(name) ?? "";
  return {
    table: table.table,
    missing: given.has("table") && given.get("table") !== table.table ? given.get("table") : null,
    ...rangeOf(given, table),
    arrival: given.get("time") === "arrival",
    f: FUNCTIONS.includes(given.get("f")) ? given.get("f") : "count",
    of: text("of"),
    is: text("is"),
    than: text("than"),
    isShareOpen: isOpen(table, text("of"), text("is"), text("than")),
    by: given.getAll("by"),
    every: text("every"),
    compare: text("compare"),
    chart: text("chart"),
    latitude: text("latitude"),
    longitude: text("longitude"),
    where: columns.map((column, at) => {
      const [op, value] = [ops[at] ?? "=", values[at] ?? ""];
      return { column, op, value, isOpen: isOpen(table, column, op, value) };
    }),
  };
}

// Whether a condition waits for its value. An empty text is a value.
function isOpen(table, column, op, value) {
  const kind = table.columns.find(({ name }) => name === column)?.kind;
  return value === "" && !op.startsWith("is ") && kind !== undefined && kind !== "text";
}

// The time range. Without one, the page shows all of the newest events, and of archived days the last one.
function rangeOf(given, table) {
  const last = given.get("last");
  if (last === "between") return { last, from: given.get("from") ?? "", to: given.get("to") ?? "" };
  if (last !== null || !isArchived(table) || table.last_ms === null) return { last: last === "all" ? "" : last ?? "", from: "", to: "" };
  return { last: "between", from: minuteOf(table.last_ms - SECONDS.d * 1000 + 1), to: minuteOf(table.last_ms + 1) };
}

const minuteOf = (ms) => new Date(ms).toISOString().slice(0, 16);

export function hashOf(view) {
  const found = new URLSearchParams({ table: view.table });
  const isWarehouse = view.table.startsWith(WAREHOUSE);
  if (view.last !== null && (view.last || isWarehouse)) found.set("last", view.last || "all");
  if (view.last === "between") for (const name of ["from", "to"]) if (view[name]) found.set(name, view[name]);
  if (view.arrival) found.set("time", "arrival");
  if (view.f !== "count") found.set("f", view.f);
  for (const name of view.f === "share" ? ["of", "is", "than"] : ["of"]) if (view[name]) found.set(name, view[name]);
  for (const column of view.by) found.append("by", column);
  for (const name of ["every", "compare", "chart", "latitude", "longitude"]) if (view[name]) found.set(name, view[name]);
  for (const { column, op, value } of view.where) {
    found.append("c", column);
    found.append("o", op);
    found.append("v", value);
  }
  return `#${found}`;
}

function conditionOf({ column, op, value }) {
  if (op.startsWith("is ")) return { column, op };
  return { column, op, value: op.endsWith("in") ? value.split(",").map((each) => each.trim()) : value };
}

// The aggregate as the server expects it. Until its value is typed, a share counts the events with any value.
function aggregateOf(view) {
  if (view.f !== "share") return { function: view.f, ...(view.of ? { column: view.of } : {}) };
  return { function: "share", ...conditionOf({ column: view.of || null, op: view.isShareOpen || !view.is ? "is not null" : view.is, value: view.than }) };
}

// The table, the time range and the filters, as the server expects them.
export function rowsOf(view) {
  const filters = view.where.filter(({ column, isOpen }) => column && !isOpen).map(conditionOf);
  return { table: view.table, filters, time: view.arrival ? "_arrived" : "_event_time", ...spanOf(view) };
}

function spanOf(view) {
  if (view.last !== "between") return view.last ? { last: view.last } : {};
  return Object.fromEntries(["from", "to"].filter((name) => view[name]).map((name) => [name, `${view[name]}Z`]));
}

export const hasRange = (view) => Object.keys(spanOf(view)).length > 0;

// The view of a time range alone (milliseconds).
export const during = (view, fromMs, toMs) => ({ ...view, last: "between", from: secondOf(fromMs), to: secondOf(toMs), every: "" });
const secondOf = (ms) => new Date(ms).toISOString().slice(0, 19);

// The query of the first and last time, which the automatic interval of a view without a time range depends on; null if it does not.
export const extentOf = (view) => (view.every || view.chart || hasRange(view) ? null : {
  ...rowsOf(view),
  aggregates: ["min", "max"].map((name) => ({ function: name, column: view.arrival ? "_arrived" : "_event_time" })),
});

export function queryOf(view, table) {
  return {
    ...rowsOf(view),
    aggregates: [aggregateOf(view)],
    group_by: view.by,
    ...(view.chart === "map" ? { series: PLACES } : view.chart === "bars" ? { series: BARS } : { series: SERIES, every: view.every || automatic(view, table) }),
    ...(view.compare && hasRange(view) ? { compare: view.compare } : {}),
  };
}

// The query of a map of places by latitude and longitude.
export const placesOf = (view) => ({
  ...rowsOf(view),
  aggregate: aggregateOf(view),
  latitude: view.latitude,
  longitude: view.longitude,
});

// The column of a histogram: the one of the aggregate, or the first with numbers.
export const columnOf = (view, table) => {
  const numbers = table.columns.filter((column) => column.kind === "number").map((column) => column.name);
  return numbers.includes(view.of) ? view.of : numbers.find((name) => !name.startsWith("_")) ?? numbers[0];
};

function automatic(view, table) {
  const [from, to] = ["from", "to"].map((name) => (view[name] ? Date.parse(`${view[name]}Z`) : null));
  const rangeMs = (to ?? table.last_ms ?? 0) - (from ?? table.first_ms ?? 0);
  const seconds = view.last && view.last !== "between" ? secondsOf(view.last) : Math.max(60, rangeMs / 1000);
  return INTERVALS.find((each) => secondsOf(each) * POINTS >= seconds) ?? "1d";
}
