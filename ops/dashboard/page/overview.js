// The first page: what is wrong, the graph, what runs, and the last hour.

import { el, section } from "./dom.js";
import { Findings, alertsAsFindings, pageOf } from "./findings.js";
import { countOrUnknown, rate, spanOrNone, spanOrUnknown } from "./format.js";
import { Graph, worstOf } from "./graph.js";
import { COUNTS, Plot, SPANS, colorClass, spark } from "./plot.js";
import { timeRange } from "./time_range.js";
import { lastSaved, running } from "./processor_status.js";
import { Table } from "./table.js";

// The findings that color the backlog.
const LATE = new Set(["not running", "without owner", "lag", "retention"]);

export class Overview {
  constructor(state) {
    this.findings = new Findings({ linked: true });
    this.alerts = new Findings({ linked: true });
    this.graph = new Graph();
    this.choice = timeRange(() => this.update(this.state));
    this.table = new Table("Processors", this.#columns());
    this.plots = [
      [new Plot("Throughput (events/s)", COUNTS, { legend: true }), "rate_in"],
      [new Plot("Backlog (events)", COUNTS, { legend: true }), "behind"],
      [new Plot("Lag (time)", SPANS, { legend: true }), "behind_s"],
      [new Plot("Watermark lag", SPANS, { legend: true }), "watermark_lag_s"],
    ];
    this.legend = el("ul", { class: "legend" });
    const over = section("The last hour", this.legend, el("div", { class: "plots" }, ...this.plots.map(([plot]) => plot.element)));
    over.head.append(this.choice.element);
    this.whole = [
      section("Findings", this.findings.element).element,
      (this.alertSection = section("Alerts", this.alerts.element).element),
      section("Graph", this.graph.element).element,
      section("Processors", this.table.element).element,
      over.element,
    ];
    this.empty = emptyCard();
    this.elements = [...this.whole, this.empty];
    this.update(state);
  }

  close() {
    this.graph.close();
    for (const [plot] of this.plots) plot.close();
  }

  update(state) {
    this.state = state;
    const { picture, history } = state;
    const none = !picture || !picture.processors.length;
    for (const part of this.whole) part.hidden = none;
    this.empty.hidden = !none || !picture;
    if (none) return;
    this.findings.update(picture.findings, "No findings.");
    this.alertSection.hidden = !picture.alerts.length;
    this.alerts.update(alertsAsFindings(picture.alerts, picture.at_ms), "");
    this.graph.update(picture);
    const late = worstOf(picture.findings.filter((finding) => LATE.has(finding.kind)));
    this.table.update(picture.processors.map((one) => ({ key: one.processor, one, late: late.get(one.processor) })));
    this.#draw(picture, history);
  }

  #draw(picture, history) {
    const names = picture.processors.map((one) => one.processor);
    const { ms } = this.choice;
    for (const [plot, field] of this.plots) plot.update(history.times, names.map((name, color) => ({ name, color, values: history.of(name, field) })), ms);
    for (const canvas of this.table.element.querySelectorAll("canvas")) spark(canvas, history.times, history.of(canvas.dataset.of, "rate_in"), ms);
    const listed = JSON.stringify(names);
    if (this.legend.dataset.names !== listed) {
      this.legend.dataset.names = listed;
      this.legend.replaceChildren(...names.map((name, at) => el("li", {}, el("i", { class: colorClass(at) }), el("a", { href: pageOf(name) }, name))));
    }
  }

  #columns() {
    return [
      { title: "processor", text: ({ one }) => one.processor, href: ({ one }) => pageOf(one.processor) },
      { title: "workers", number: true, text: ({ one }) => String(running(one).length), tone: ({ one }) => (running(one).length ? null : "warning") },
      { title: "in/s", number: true, text: ({ one }) => rate(one.rate_in) },
      { title: "", wide: true, kind: "spark", make: ({ one }) => sparkOf(one.processor) },
      { title: "out/s", number: true, wide: true, text: ({ one }) => rate(one.rate_out) },
      { title: "backlog (events)", number: true, text: ({ one }) => countOrUnknown(one.behind), tone: ({ late }) => late },
      { title: "lag (time)", number: true, text: ({ one }) => (one.behind === 0 ? "–" : spanOrUnknown(one.behind_s)) },
      { title: "watermark lag", number: true, wide: true, text: ({ one }) => spanOrNone(one.watermark_lag_s) },
      { title: "last checkpoint", number: true, wide: true, text: ({ one }) => spanOrNone(lastSaved(one)) },
      { title: "backup", number: true, wide: true, text: ({ one }) => spanOrNone(one.backup_age_s) },
      { title: "dead letters", number: true, wide: true, text: ({ one }) => countOrUnknown(one.dead_letters) },
    ];
  }
}

function sparkOf(name) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  canvas.dataset.of = name;
  return canvas;
}

function emptyCard() {
  return el("section", { class: "card empty" },
    el("h1", {}, "Nothing runs yet"),
    el("p", {}, "No processor has reported on this bus within the last hour. Start one, and it appears here within seconds:"),
    el("pre", {}, "penstock category create app.py\npenstock run app.py"),
    el("p", { class: "quiet" }, "Started as ", el("code", {}, "penstock dashboard app.py"), ", this page shows an app's processors also before they run."));
}
