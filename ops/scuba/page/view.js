// The query of a view, and its address.

export const FUNCTIONS = ["count", "sum", "avg", "min", "max", "p50", "p95", "p99", "distinct"];
export const OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "starts with", "is null", "is not null"];
export const RANGES = [["", "all times"], ["5m", "last 5 min"], ["15m", "last 15 min"], ["1h", "last hour"], ["6h", "last 6 h"], ["1d", "last day"]];
export const INTERVALS = ["1s", "5s", "10s", "30s", "1m", "5m", "10m", "30m", "1h", "6h", "1d"];
export const SERIES = 7;
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };
const POINTS = 120; // an automatic interval gives at most as many

export const secondsOf = (text) => Number(text.slice(0, -1)) * SECONDS[text.slice(-1)];

// A view: {table, last, arrival, f, of, by: [column], every, where: [{column, op, value}]}
export function viewOf(hash, tables) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const table = tables.find((each) => each.table === given.get("table")) ?? tables[0];
  const [columns, ops, values] = ["c", "o", "v"].map((name) => given.getAll(name));
  return {
    table: table.table,
    last: given.get("last") ?? "",
    arrival: given.get("time") === "arrival",
    f: FUNCTIONS.includes(given.get("f")) ? given.get("f") : "count",
    of: given.get("of") ?? "",
    by: given.getAll("by"),
    every: given.get("every") ?? "",
    where: columns.map((column, at) => ({ column, op: ops[at] ?? "=", value: values[at] ?? "" })),
  };
}

export function hashOf(view) {
  const found = new URLSearchParams({ table: view.table });
  if (view.last) found.set("last", view.last);
  if (view.arrival) found.set("time", "arrival");
  if (view.f !== "count") found.set("f", view.f);
  if (view.of) found.set("of", view.of);
  for (const column of view.by) found.append("by", column);
  if (view.every) found.set("every", view.every);
  for (const { column, op, value } of view.where) {
    found.append("c", column);
    found.append("o", op);
    found.append("v", value);
  }
  return `#${found}`;
}

// The table, the time range and the filters, as the server expects them.
export function rowsOf(view) {
  const filters = view.where.filter(({ column }) => column).map(({ column, op, value }) => {
    if (op.startsWith("is ")) return { column, op };
    return { column, op, value: op.endsWith("in") ? value.split(",").map((each) => each.trim()) : value };
  });
  return { table: view.table, filters, time: view.arrival ? "_arrived" : "_event_time", ...(view.last ? { last: view.last } : {}) };
}

export function queryOf(view, table) {
  return {
    ...rowsOf(view),
    aggregates: [{ function: view.f, ...(view.of ? { column: view.of } : {}) }],
    group_by: view.by,
    series: SERIES,
    every: view.every || automatic(view, table),
  };
}

function automatic(view, table) {
  const seconds = view.last ? secondsOf(view.last) : Math.max(60, ((table.last_ms ?? 0) - (table.first_ms ?? 0)) / 1000);
  return INTERVALS.find((each) => secondsOf(each) * POINTS >= seconds) ?? "1d";
}
