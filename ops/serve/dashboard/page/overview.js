// The start page: findings, alerts, the graph, all processors, and the last hour.

import { el, section } from "./dom.js";
import { Findings, alertsAsFindings, pageOf } from "./findings.js";
import { count, countOrUnknown, plural, rate, spanOrNone, spanOrUnknown } from "./format.js";
import { Graph, worstOf } from "./graph.js";
import { deploysOf } from "./history.js";
import { COLORS, COUNTS, Plot, SPANS, colorClass, spark } from "./plot.js";
import { Selection } from "./selection.js";
import { timeRange } from "./time_range.js";
import { running, versionsOf } from "./processor_status.js";
import { Table } from "./table.js";

// The states that need no attention.
const CALM_STATES = new Set(["running", "starting"]);

// The findings that color the backlog.
const BACKLOG_FINDINGS = new Set(["not running", "stopped", "failed", "lost", "crash-looping", "without owner", "lag", "retention"]);

// A link to a server's page, if it has one: browsers open http only.
const SERVER_COLUMNS = [
  { title: "server", text: ({ row }) => row.name },
  { title: "state", text: ({ row }) => row.state, tone: ({ row }) => (CALM_STATES.has(row.state) ? null : "critical") },
  { title: "version", text: ({ row }) => row.label },
  { title: "address", text: ({ row }) => row.urls.join(" "), href: ({ row }) => row.urls.find((url) => url.startsWith("http")) ?? null },
];

export class Overview {
  constructor(state) {
    this.findings = new Findings({ linked: true });
    this.alerts = new Findings({ linked: true });
    this.graph = new Graph();
    this.timeRange = timeRange(() => this.update(this.state));
    this.selection = new Selection(() => this.update(this.state));
    this.table = new Table("Processors", this.#columns(), groupText);
    this.servers = new Table("Servers", SERVER_COLUMNS);
    this.plots = [
      [new Plot("Throughput (events/s)", COUNTS, { legend: true }), "events_in_per_s"],
      [new Plot("Backlog (events)", COUNTS, { legend: true }), "backlog_events"],
      [new Plot("Lag (time)", SPANS, { legend: true }), "lag_s"],
      [new Plot("Watermark lag", SPANS, { legend: true }), "watermark_lag_s"],
    ];
    this.legend = el("ul", { class: "legend" });
    const lastHour = section("The last hour", this.legend, el("div", { class: "plots" }, ...this.plots.map(([plot]) => plot.element)));
    lastHour.head.append(this.timeRange.element);
    this.sections = [
      section("Findings", this.findings.element).element,
      (this.alertSection = section("Alerts", this.alerts.element).element),
      this.selection.element,
      section("Graph", this.graph.element).element,
      section("Processors", this.table.element).element,
      (this.serverSection = section("Servers", this.servers.element).element),
      lastHour.element,
    ];
    this.empty = emptyCard();
    this.elements = [...this.sections, this.empty];
    this.update(state);
  }

  close() {
    this.graph.close();
    this.selection.close();
    for (const [plot] of this.plots) plot.close();
  }

  update(state) {
    this.state = state;
    const { status, history } = state;
    const isEmpty = !status || !(status.processors.length || status.servers.length);
    for (const part of this.sections) part.hidden = isEmpty;
    this.empty.hidden = !isEmpty || !status;
    if (isEmpty) return;
    this.findings.update(status.findings, "No findings.");
    this.serverSection.hidden = !status.servers.length;
    this.servers.update(status.servers.map((row) => ({ key: row.name, row })));
    this.alertSection.hidden = !status.alerts.length;
    this.alerts.update(alertsAsFindings(status.alerts, status.at_ms), "");
    const selected = this.selection.select(status.processors);
    this.graph.update({ ...status, processors: selected });
    const severities = worstOf(status.findings.filter((finding) => BACKLOG_FINDINGS.has(finding.kind)));
    this.table.update(selected.map((row) => ({ key: row.processor, row, severity: severities.get(row.processor), group: this.selection.groupOf(row) })));
    this.#draw(selected, new Set(status.findings.map((finding) => finding.processor)), history);
  }

  // Colors go to the processors with findings, then to the processors that read most; the other lines are grey.
  #draw(processors, withFindings, history) {
    const byInterest = [...processors].sort((left, right) => withFindings.has(right.processor) - withFindings.has(left.processor) || right.events_in_per_s - left.events_in_per_s);
    const given = processors.map(({ processor }) => processor);
    const names = given.length > COLORS ? this.#steady(byInterest.map(({ processor }) => processor), given) : given;
    const { ms } = this.timeRange;
    const marks = names.flatMap((name) => deploysOf(history, name).map((mark) => ({ ...mark, text: `${name} ${mark.text}` })));
    // The grey lines are drawn first, below the others.
    const lines = (field) => names.map((name, color) => ({ name, color, values: history.of(name, field) })).reverse();
    for (const [plot, field] of this.plots) plot.update(history.times, lines(field), ms, marks);
    for (const canvas of this.table.element.querySelectorAll("canvas")) spark(canvas, history.times, history.of(canvas.dataset.processor, "events_in_per_s"), ms);
    const listed = JSON.stringify(names);
    if (this.legend.dataset.names !== listed) {
      this.legend.dataset.names = listed;
      const others = names.length - COLORS;
      this.legend.replaceChildren(...names.slice(0, COLORS).map((name, index) => el("li", {}, el("i", { class: colorClass(index) }), el("a", { href: pageOf(name) }, name))),
        ...(others > 0 ? [el("li", { class: "quiet" }, el("i", { class: colorClass(COLORS) }), plural(others, "other processor"))] : []));
    }
  }

  // Keeps the order of the last update while the same processors are shown, so that colors do not jump.
  #steady(names, given) {
    const set = [...given].sort().join();
    if (this.orderedSet !== set) Object.assign(this, { orderedSet: set, ordered: names });
    return this.ordered;
  }

  #columns() {
    return [
      { title: "processor", text: ({ row }) => row.processor, href: ({ row }) => pageOf(row.processor) },
      { title: "state", text: ({ row }) => row.state, tone: ({ row }) => (CALM_STATES.has(row.state) ? null : "warning"), value: ({ row }) => (CALM_STATES.has(row.state) ? `~${row.state}` : row.state) },
      { title: "version", number: true, text: ({ row }) => versionsOf(row), value: ({ row }) => row.versions[0] ?? null },
      { title: "workers", number: true, text: ({ row }) => String(running(row).length), tone: ({ row }) => (running(row).length ? null : "warning"), value: ({ row }) => running(row).length },
      { title: "in/s", number: true, text: ({ row }) => rate(row.events_in_per_s), value: ({ row }) => row.events_in_per_s },
      { title: "", kind: "spark", make: ({ row }) => sparkOf(row.processor) },
      { title: "out/s", number: true, text: ({ row }) => rate(row.events_out_per_s), value: ({ row }) => row.events_out_per_s },
      { title: "backlog (events)", number: true, text: ({ row }) => countOrUnknown(row.backlog_events), tone: ({ severity }) => severity, value: ({ row }) => row.backlog_events },
      { title: "lag (time)", number: true, text: ({ row }) => (row.backlog_events === 0 ? "–" : spanOrUnknown(row.lag_s)), value: ({ row }) => row.lag_s },
      { title: "watermark lag", number: true, text: ({ row }) => spanOrNone(row.watermark_lag_s), value: ({ row }) => row.watermark_lag_s },
      { title: "last checkpoint", number: true, text: ({ row }) => spanOrNone(row.checkpoint_age_s), value: ({ row }) => row.checkpoint_age_s },
      { title: "backup", number: true, text: ({ row }) => spanOrNone(row.backup_age_s), value: ({ row }) => row.backup_age_s },
      { title: "dead letters", number: true, text: ({ row }) => countOrUnknown(row.dead_letters), value: ({ row }) => row.dead_letters },
    ];
  }
}

// The figures of a group of processors.
function groupText(members) {
  const rows = members.map(({ row }) => row);
  const backlog = rows.reduce((sum, row) => sum + (row.backlog_events ?? 0), 0);
  const unwell = rows.filter((row) => !CALM_STATES.has(row.state)).length;
  return [plural(rows.length, "processor"), unwell && `${unwell} not running`, `${rate(rows.reduce((sum, row) => sum + row.events_in_per_s, 0))} in/s`,
    `backlog ${count(backlog)}`, `lag ${spanOrNone(Math.max(...rows.map((row) => row.lag_s ?? 0)))}`].filter(Boolean).join(", ");
}

function sparkOf(name) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  canvas.dataset.processor = name;
  return canvas;
}

function emptyCard() {
  return el("section", { class: "card empty" },
    el("h1", {}, "No processor runs yet"),
    el("p", {}, "No processor has reported on this Kafka cluster within the last hour. Start one, and it appears here within seconds:"),
    el("pre", {}, "penstock category create app.py\npenstock run app.py"),
    el("p", { class: "quiet" }, "Start the dashboard as ", el("code", {}, "penstock serve dashboard app.py"), " to see an app's processors before they run."));
}
