// The page: a query, its groups, their time series, and sample rows. The hash of the address is the query.

import { request } from "../shared/api.js";
import { el, section, setProse, setText } from "../shared/dom.js";
import { bytes, count, span, time } from "../shared/format.js";
import { question } from "./question.js";
import { series } from "./series.js";
import { hashOf, queryOf, rowsOf, secondsOf, viewOf } from "./view.js";

const SAMPLES = 20;
const [main, live, banner] = ["content", "live", "banner"].map((id) => document.getElementById(id));
const results = el("div", { class: "results" });
let asked = 0;
let plot = null;

const SERVER = { name: "Scuba server", command: "penstock scuba serve" };
const post = (path, query) => request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(query) }, SERVER);

function showError(error) {
  banner.hidden = !error;
  setProse(banner, error ? error.message : "");
}

const figure = (number) => (Number.isInteger(number) ? number : Number(number.toPrecision(6))).toLocaleString("en", { maximumFractionDigits: 9 });
const cell = (value) => (value === null ? "NULL" : typeof value === "number" ? figure(value) : String(value));
const estimate = ({ value, margin }) => `${cell(value)}${margin ? ` ± ${cell(margin)}` : ""}`;
const nameOf = (row, group) => (group.length ? row.group.map(cell).join(", ") : "all");

function table(label, heads, rows) {
  return el("div", { class: "card scroll limited", tabindex: "0", role: "region", "aria-label": label },
    el("table", { "aria-label": label },
      el("thead", {}, el("tr", {}, ...heads.map(({ title, number }) => el("th", { scope: "col", class: number ? "number" : null }, title)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((each, at) => el("td", { class: heads[at].number ? "number" : null }, each)))))));
}

function figures(info, answer) {
  const facts = {
    "events in the answer": `${count(answer.matched)}${answer.is_sampled ? " sampled" : ""}`,
    groups: answer.groups > answer.rows.length ? `${answer.rows.length} of ${count(answer.groups)}` : count(answer.groups),
    "answered in": `${count(answer.elapsed_ms)} ms`,
    "rows of the table": count(info.rows),
    size: bytes(info.size_bytes),
    rejected: count(info.rejected),
  };
  return el("dl", { class: "figures" }, ...Object.entries(facts).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

// A group leads to its own events.
function only(view, row) {
  const where = view.by.map((column, at) => (row.group[at] === null ? { column, op: "is null", value: "" } : { column, op: "=", value: String(row.group[at]) }));
  return hashOf({ ...view, by: [], where: [...view.where, ...where] });
}

function groups(view, answer) {
  const heads = [...(answer.group_by.length ? answer.group_by : ["group"]).map((title) => ({ title })), { title: answer.aggregates[0], number: true }, { title: "" }];
  const rows = answer.rows.map((row, at) => {
    const names = (answer.group_by.length ? row.group.map(cell) : ["all"]).map((name, index) =>
      el("span", {}, ...(index ? [] : [el("i", { class: `swatch c${at + 1}` })]), name));
    return [...names, estimate(row.values[0]), answer.group_by.length ? el("a", { href: only(view, row), "aria-label": `Only ${nameOf(row, answer.group_by)}` }, "only this") : ""];
  });
  return table("Groups", heads, rows);
}

function sampleRows(samples) {
  const times = new Set(["_event_time", "_arrived"].map((name) => samples.columns.indexOf(name)));
  const rows = samples.rows.map((row) => row.map((value, at) => (times.has(at) ? time(value) : cell(value))));
  return table("Newest rows", samples.columns.map((title) => ({ title })), rows);
}

function pointRows(answer) {
  const rows = answer.points.map((point) => [time(point.start_ms), nameOf(answer.rows[point.series], answer.group_by), estimate(point.values[0])]);
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
    const query = queryOf(view, info);
    const [answer, samples] = await Promise.all([post("query", query), post("samples", { ...rowsOf(view), limit: SAMPLES })]);
    if (number !== asked) return;
    showError(null);
    showAnswer(view, info, query, answer, samples);
  } catch (error) {
    if (number === asked) showError(error);
  }
}

// The control that was used keeps the focus in the new form.
function replaceForm(form) {
  const used = document.activeElement?.getAttribute("aria-label");
  if (!results.isConnected) main.replaceChildren(form, results);
  else main.querySelector("form").replaceWith(form);
  if (used) form.querySelector(`[aria-label="${CSS.escape(used)}"]`)?.focus();
}

function showAnswer(view, info, query, answer, samples) {
  plot?.close();
  plot = null;
  const lag = answer.lag_events === null ? "lag unknown" : answer.lag_events ? `${count(answer.lag_events)} events behind${answer.lag_s ? ` (${span(answer.lag_s)})` : ""}` : "no lag";
  setText(live, answer.problem ? answer.problem : lag);
  live.className = answer.problem ? "off" : "on";
  const parts = [figures(info, answer)];
  if (!answer.rows.length) parts.push(el("p", { class: "card empty" }, "No event fits. Choose another time range, or remove a filter."));
  else {
    plot = series(answer, answer.rows.map((row) => nameOf(row, answer.group_by)), secondsOf(query.every) * 1000);
    const note = answer.is_truncated ? el("p", { class: "quiet" }, "There are more points. Choose a longer interval.") : null;
    parts.push(section(`${answer.aggregates[0]} every ${query.every}`, ...[plot.element, note, pointRows(answer)].filter(Boolean)).element, section("Groups", groups(view, answer)).element);
  }
  parts.push(section("Newest rows", sampleRows(samples)).element);
  if (info.rejections.length) parts.push(section("Rejected events", table("Rejected events", [{ title: "position and reason" }], info.rejections.map((each) => [each]))).element);
  results.replaceChildren(...parts);
}

addEventListener("hashchange", ask);
ask();
