// The start page: findings, alerts, the graph, all processors, and the last hour.

import { el, section } from "./dom.js";
import { Findings, alertsAsFindings, pageOf } from "./findings.js";
import { countOrUnknown, rate, spanOrNone, spanOrUnknown } from "./format.js";
import { Graph, worstOf } from "./graph.js";
import { COUNTS, Plot, SPANS, colorClass, spark } from "./plot.js";
import { timeRange } from "./time_range.js";
import { checkpointAge, running } from "./processor_status.js";
import { Table } from "./table.js";

// The states that need no attention.
const CALM_STATES = new Set(["running", "starting"]);

// The findings that color the backlog.
const BACKLOG_FINDINGS = new Set(["not running", "stopped", "failed", "lost", "crash-looping", "without owner", "lag", "retention"]);

export class Overview {
  constructor(state) {
    this.findings = new Findings({ linked: true });
    this.alerts = new Findings({ linked: true });
    this.graph = new Graph();
    this.timeRange = timeRange(() => this.update(this.state));
    this.table = new Table("Processors", this.#columns());
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
      section("Graph", this.graph.element).element,
      section("Processors", this.table.element).element,
      lastHour.element,
    ];
    this.empty = emptyCard();
    this.elements = [...this.sections, this.empty];
    this.update(state);
  }

  close() {
    this.graph.close();
    for (const [plot] of this.plots) plot.close();
  }

  update(state) {
    this.state = state;
    const { status, history } = state;
    const isEmpty = !status || !status.processors.length;
    for (const part of this.sections) part.hidden = isEmpty;
    this.empty.hidden = !isEmpty || !status;
    if (isEmpty) return;
    this.findings.update(status.findings, "No findings.");
    this.alertSection.hidden = !status.alerts.length;
    this.alerts.update(alertsAsFindings(status.alerts, status.at_ms), "");
    this.graph.update(status);
    const severities = worstOf(status.findings.filter((finding) => BACKLOG_FINDINGS.has(finding.kind)));
    this.table.update(status.processors.map((row) => ({ key: row.processor, row, severity: severities.get(row.processor) })));
    this.#draw(status, history);
  }

  #draw(status, history) {
    const names = status.processors.map(({ processor }) => processor);
    const { ms } = this.timeRange;
    for (const [plot, field] of this.plots) plot.update(history.times, names.map((name, color) => ({ name, color, values: history.of(name, field) })), ms);
    for (const canvas of this.table.element.querySelectorAll("canvas")) spark(canvas, history.times, history.of(canvas.dataset.processor, "events_in_per_s"), ms);
    const listed = JSON.stringify(names);
    if (this.legend.dataset.names !== listed) {
      this.legend.dataset.names = listed;
      this.legend.replaceChildren(...names.map((name, index) => el("li", {}, el("i", { class: colorClass(index) }), el("a", { href: pageOf(name) }, name))));
    }
  }

  #columns() {
    return [
      { title: "processor", text: ({ row }) => row.processor, href: ({ row }) => pageOf(row.processor) },
      { title: "state", text: ({ row }) => row.state, tone: ({ row }) => (CALM_STATES.has(row.state) ? null : "warning") },
      { title: "workers", number: true, text: ({ row }) => String(running(row).length), tone: ({ row }) => (running(row).length ? null : "warning") },
      { title: "in/s", number: true, text: ({ row }) => rate(row.events_in_per_s) },
      { title: "", wide: true, kind: "spark", make: ({ row }) => sparkOf(row.processor) },
      { title: "out/s", number: true, wide: true, text: ({ row }) => rate(row.events_out_per_s) },
      { title: "backlog (events)", number: true, text: ({ row }) => countOrUnknown(row.backlog_events), tone: ({ severity }) => severity },
      { title: "lag (time)", number: true, text: ({ row }) => (row.backlog_events === 0 ? "–" : spanOrUnknown(row.lag_s)) },
      { title: "watermark lag", number: true, wide: true, text: ({ row }) => spanOrNone(row.watermark_lag_s) },
      { title: "last checkpoint", number: true, wide: true, text: ({ row }) => spanOrNone(checkpointAge(row)) },
      { title: "backup", number: true, wide: true, text: ({ row }) => spanOrNone(row.backup_age_s) },
      { title: "dead letters", number: true, wide: true, text: ({ row }) => countOrUnknown(row.dead_letters) },
    ];
  }
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
    el("p", { class: "quiet" }, "Start the dashboard as ", el("code", {}, "penstock dashboard app.py"), " to see an app's processors before they run."));
}
