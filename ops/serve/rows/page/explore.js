// The page: a query, its groups, their time series, and sample rows. The hash of the address is the query.

import { parse, request } from "../shared/api.js";
import { el, section, setProse, setText } from "../shared/dom.js";
import { bytes, count, span, time } from "../shared/format.js";
import { groupBars, histogramBars } from "./bars.js";
import { countryMap, countryName, countryOf, placeMap } from "./map.js";
import { question } from "./question.js";
import { series } from "./series.js";
import { columnOf, during, extentOf, hashOf, isArchived, placesOf, queryOf, rowsOf, secondsOf, shortName, viewOf } from "./view.js";

const APP = "explored";
const SAMPLES = 20;
const EXPORTED = 1_000_000;
const [main, live, banner] = ["content", "live", "banner"].map((id) => document.getElementById(id));
const results = el("div", { class: "results" });
let asked = 0;
let plot = null;

const SERVER = { name: "Scuba server", command: "penstock serve scuba" };
const post = (path, query) => request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(query) }, SERVER);

function showError(error) {
  banner.hidden = !error;
  setProse(banner, error ? error.message : "");
}

const figure = (number) => (Number.isInteger(number) ? number : Number(number.toPrecision(6))).toLocaleString("en", { maximumFractionDigits: 9 });
const cell = (value) => (value === null ? "NULL" : typeof value === "number" ? figure(value) : String(value));
const estimate = ({ value, margin }) => `${cell(value)}${margin === null && value !== null ? " ±?" : margin ? ` ± ${cell(margin)}` : ""}`;
// A value of a row, as it is: an id or a year has no separators, and a time is no number.
const plain = (value, column, info) => (value !== null && timesOf(info).has(column) ? time(Number(value)) : value === null ? "NULL" : String(value));
const timesOf = (info) => new Set(["_event_time", "_arrived", info.event_time]);
const namesOf = (row, group, info) => row.group.map((value, at) => plain(value, group[at], info));
const nameOf = (row, group, info) => (group.length ? namesOf(row, group, info).join(", ") : "all");

function table(label, heads, rows) {
  return el("div", { class: "card scroll limited", tabindex: "0", role: "region", "aria-label": label },
    el("table", { "aria-label": label },
      el("thead", {}, el("tr", {}, ...heads.map(({ title, number }) => el("th", { scope: "col", class: number ? "number" : null }, title)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((each, at) => el("td", { class: heads[at].number ? "number" : null }, each)))))));
}

function figures(info, answer) {
  const facts = {
    "events in the answer": `${count(answer.matched)}${answer.is_sampled ? " sampled" : ""}`,
    groups: `${answer.groups > answer.rows.length ? `${answer.rows.length} of ` : ""}${answer.is_sampled ? "at least " : ""}${count(answer.groups)}`,
    "answered in": `${count(answer.elapsed_ms)} ms`,
    ...(isArchived(info)
      ? { ...(answer.days ? { "days read": `${count(answer.days.read)} of ${count(answer.days.total)}`, "size of their files": bytes(answer.days.size_bytes) } : {}), "size of all files": bytes(info.size_bytes) }
      : { "rows of the table": count(info.rows), size: bytes(info.size_bytes), rejected: count(info.rejected) }),
  };
  return el("dl", { class: "figures" }, ...Object.entries(facts).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

// A group leads to its own events.
function only(view, row) {
  const where = view.by.map((column, at) => (row.group[at] === null ? { column, op: "is null", value: "" } : { column, op: "=", value: String(row.group[at]) }));
  return hashOf({ ...view, by: [], where: [...view.where, ...where] });
}

function groups(view, info, answer) {
  const isCompared = answer.compared.length > 0;
  const heads = [...(answer.group_by.length ? answer.group_by : ["group"]).map((title) => ({ title })), { title: answer.aggregates[0], number: true },
    ...(isCompared ? [{ title: "before", number: true }, { title: "change", number: true }] : []), { title: "" }];
  const rows = answer.rows.map((row, at) => {
    const names = (answer.group_by.length ? namesOf(row, answer.group_by, info) : ["all"]).map((name, index) =>
      el("span", {}, ...(index ? [] : [el("i", { class: view.chart ? null : `swatch c${at + 1}` })]), name));
    return [...names, estimate(row.values[0]), ...(isCompared ? compared(row.values[0], answer.compared[at]) : []), answer.group_by.length ? el("a", { href: only(view, row), "aria-label": `Only ${nameOf(row, answer.group_by, info)}` }, "only this") : ""];
  });
  return table("Groups", heads, rows);
}

function compared({ value }, before) {
  if (!before || before[0].value === null) return ["none", ""];
  const earlier = Number(before[0].value);
  const change = earlier && value !== null ? `${value >= earlier ? "+" : "−"}${count(Math.abs(Math.round((100 * (value - earlier)) / earlier)))} %` : "";
  return [estimate(before[0]), change];
}

// Buttons that download what the page shows.
function downloads(view, query) {
  const give = (blob, name) => {
    const link = el("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };
  const save = async (path, body, form) => {
    try {
      const response = await fetch(`${path}?format=${form}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      if (!response.ok) throw new Error(parse(await response.text()).message);
      give(await response.blob(), `${shortName(view.table)}.${form}`);
    } catch (error) {
      showError(error);
    }
  };
  const saveApp = async () => {
    try {
      const { sql } = await post("app", { query, name: APP, source: location.href });
      give(new Blob([sql], { type: "text/plain" }), `${APP}.sql`);
    } catch (error) {
      showError(error);
    }
  };
  const button = (text, path, body, form) => el("button", { type: "button", on: { click: () => save(path, body, form) } }, text);
  const rows = { ...rowsOf(view), limit: EXPORTED };
  return el("p", { class: "downloads" }, "Download the chart: ", button("CSV", "query", query, "csv"), button("Parquet", "query", query, "parquet"),
    " the rows: ", button("CSV of rows", "samples", rows, "csv"), button("Parquet of rows", "samples", rows, "parquet"),
    ...(view.chart === "histogram" || view.latitude ? [] : [" the query: ",
      el("button", { type: "button", title: "An app in SQL, which computes the same from now on: penstock run explored.sql", on: { click: saveApp } }, "SQL app")]));
}

// How the message of a row is read. Archived events may have left Kafka.
function messageOf(view, samples) {
  if (!samples.rows.length) return [];
  const [bucket, offset] = ["_bucket", "_offset"].map((name) => samples.rows[0][samples.columns.indexOf(name)]);
  return [el("p", { class: "quiet" }, "The message of the first row: ", el("code", {}, `penstock category tail ${view.table} --bucket ${bucket} --from ${offset} --limit 1 --headers`))];
}

function sampleRows(info, samples) {
  const rows = samples.rows.map((row) => row.map((value, at) => plain(value, samples.columns[at], info)));
  return table("Newest rows", samples.columns.map((title) => ({ title })), rows);
}

function pointRows(view, info, answer, everyMs) {
  const only = (ms) => el("a", { href: hashOf(during(view, ms, ms + everyMs)), "aria-label": `Only ${time(ms)}` }, time(ms));
  const rows = answer.points.map((point) => [only(point.start_ms), nameOf(answer.rows[point.series], answer.group_by, info), estimate(point.values[0])]);
  return el("details", {}, el("summary", {}, "The same as a table"), table("Time series", [{ title: "time" }, { title: "group" }, { title: answer.aggregates[0], number: true }], rows));
}

async function ask() {
  const number = ++asked;
  try {
    const { tables } = await request("tables", {}, SERVER);
    const view = viewOf(location.hash, tables);
    const info = tables.find((each) => each.table === view.table);
    const form = question(view, tables, (next) => { location.hash = hashOf(next); });
    if (number === asked) replaceForm(form);
    results.setAttribute("aria-busy", "true");
    const query = queryOf(view, await withExtent(view, info));
    if (number !== asked) return;
    const [answer, samples, drawn] = await Promise.all([post("query", query), post("samples", { ...rowsOf(view), limit: SAMPLES }), extra(view, info)]);
    if (number !== asked) return;
    showError(view.missing === null ? null : { message: `There is no table ${view.missing} here. The page shows ${view.table} instead.` });
    showAnswer(view, info, query, answer, samples, drawn);
  } catch (error) {
    if (number === asked) showError(error);
  } finally {
    if (number === asked) results.removeAttribute("aria-busy");
  }
}

// The table with the first and last time of the chosen events. Events that arrived within a minute may be of a whole day.
async function withExtent(view, info) {
  const query = extentOf(view);
  if (!query || !info.rows) return info;
  const [row] = (await post("query", query)).rows;
  const [first, last] = row?.values.map(({ value }) => value) ?? [null, null];
  return first === null ? info : { ...info, first_ms: Number(first), last_ms: Number(last) };
}

// The further answer that a chart needs; null if it needs none.
function extra(view, info) {
  if (view.chart === "histogram") return post("histogram", { ...rowsOf(view), column: columnOf(view, info) });
  return view.chart === "map" && view.latitude && view.longitude ? post("places", placesOf(view)) : null;
}

// The control that was used keeps the focus in the new form.
function replaceForm(form) {
  const used = document.activeElement?.getAttribute("aria-label");
  if (!results.isConnected) main.replaceChildren(form, results);
  else main.querySelector("form").replaceWith(form);
  if (used) form.querySelector(`[aria-label="${CSS.escape(used)}"]`)?.focus();
}

function freshness(info, answer) {
  if (answer.problem) return answer.problem;
  if (isArchived(info)) return info.last_ms === null ? "no day" : `archived up to ${time(info.last_ms).slice(0, 10)}`;
  if (answer.lag_events === null) return "lag unknown";
  return answer.lag_events ? `${count(answer.lag_events)} events behind${answer.lag_s ? ` (${span(answer.lag_s)})` : ""}` : "no lag";
}

function showAnswer(view, info, query, answer, samples, drawn) {
  plot?.close();
  plot = null;
  setText(live, freshness(info, answer));
  live.className = answer.problem ? "off" : "on";
  const parts = [figures(info, answer)];
  if (!answer.rows.length) parts.push(el("p", { class: "card empty" }, answer.is_sampled ? "No event of the sample fits. Others may. Choose another time range, or remove a filter." : "No event fits. Choose another time range, or remove a filter."));
  else {
    parts.push(chart(view, info, query, answer, drawn).element, section("Groups", groups(view, info, answer)).element, downloads(view, query));
    if (answer.not_finite) parts.push(quiet(`${count(answer.not_finite)} values that are infinite or no numbers (NaN) are left out.`));
    if (answer.is_compared_partly) parts.push(el("p", { class: "quiet" }, "Rows of the earlier time range may be missing: the table begins later." + (isArchived(info) ? "" : " Keep rows for longer with --keep.")));
  }
  parts.push(section("Newest rows", sampleRows(info, samples), ...(isArchived(info) ? [] : messageOf(view, samples))).element);
  if (info.rejections.length) parts.push(section("Rejected events", table("Rejected events", [{ title: "position and reason" }], info.rejections.map((each) => [each]))).element);
  results.replaceChildren(...parts);
}

function chart(view, info, query, answer, drawn) {
  const names = answer.rows.map((row) => nameOf(row, answer.group_by, info));
  if (view.chart === "histogram") {
    plot = histogramBars(drawn);
    return section(`Distribution of ${drawn.column}`, plot.element, binRows(drawn));
  }
  if (view.chart === "map") return drawn ? mapOfPlaces(view, drawn) : mapOfCountries(view, answer);
  if (view.chart === "bars") return section(`${answer.aggregates[0]} by group`, groupBars(answer, names));
  const everyMs = secondsOf(query.every) * 1000;
  plot = series(answer, names, everyMs, (fromMs, toMs) => { location.hash = hashOf(during(view, fromMs, toMs)); });
  const note = answer.is_truncated ? el("p", { class: "quiet" }, "There are more points. Choose a longer interval.") : null;
  return section(`${answer.aggregates[0]} every ${query.every}`, ...[plot.element, note, quiet("Click an interval, or drag over several, to see only their events; the table below has links."), pointRows(view, info, answer, everyMs)].filter(Boolean));
}

const quiet = (text) => el("p", { class: "quiet" }, text);

function mapOfPlaces(view, found) {
  const degree = (number, [positive, negative]) => `${figure(Number(Math.abs(number).toFixed(1)))}° ${number < 0 ? negative : positive}`;
  const within = (column, low) => [{ column, op: ">=", value: String(low) }, { column, op: "<", value: String(low + found.degrees) }];
  const places = found.places.filter(({ value }) => value.value !== null).map((place) => ({
    ...place,
    name: `${degree(place.latitude, "NS")}, ${degree(place.longitude, "EW")}`,
    value: Number(place.value.value),
    text: estimate(place.value),
    href: hashOf({ ...view, where: [...view.where, ...within(view.latitude, place.south), ...within(view.longitude, place.west)] }),
  }));
  const title = `${found.aggregate} by place, in areas of ${found.degrees}°`;
  const more = found.is_truncated ? quiet(`Only the ${count(places.length)} places with the largest values are shown.`) : null;
  return section(title, ...[placeMap(places, title), more, placeRows(places, found.aggregate)].filter(Boolean));
}

function placeRows(places, aggregate) {
  const rows = places.map((place) => [place.name, place.text, el("a", { href: place.href, "aria-label": `Only ${place.name}` }, "only this")]);
  return el("details", {}, el("summary", {}, "The same as a table"), table("Places", [{ title: "place" }, { title: aggregate, number: true }, { title: "" }], rows));
}

// The first group is the country. A group of several columns has one, too.
function mapOfCountries(view, answer) {
  const title = `${answer.aggregates[0]} by country`;
  if (view.by.length !== 1) {
    return section(title, el("p", { class: "card empty" }, "A map needs places. Group by one column with names or codes of countries (Germany, DE, DEU), or choose columns with latitude and longitude."));
  }
  const places = [];
  const others = [];
  for (const row of answer.rows) {
    const country = countryOf(row.group[0]);
    const [value] = row.values;
    if (!country) others.push(cell(row.group[0]));
    else if (value.value !== null) places.push({ country, name: countryName(country), value: Number(value.value), text: estimate(value), href: only(view, row) });
  }
  const parts = [countryMap(places, title)];
  if (others.length) parts.push(quiet(`No country: ${others.slice(0, 5).join(", ")}${others.length > 5 ? `, and ${count(others.length - 5)} more` : ""}.`));
  if (answer.groups > answer.rows.length) parts.push(quiet(`Only the ${count(answer.rows.length)} groups with the largest values are shown.`));
  return section(title, ...parts);
}

function binRows(histogram) {
  const rows = histogram.bins.map((bin) => [figure(bin.low), figure(bin.high), estimate(bin.events)]);
  return el("details", {}, el("summary", {}, "The same as a table"), table("Histogram", [{ title: "from", number: true }, { title: "to", number: true }, { title: "events", number: true }], rows));
}

addEventListener("hashchange", ask);
ask();
