// The page of one processor: findings, figures, the last hour, workers, buckets, state and dead letters.

import { Actions } from "./actions.js";
import { el, section, setText } from "./dom.js";
import { Findings, alertsAsFindings } from "./findings.js";
import { bytes, count, countOrUnknown, figureText, plural, rate, span, spanOrNone, spanOrUnknown, time } from "./format.js";
import { DeadLetters } from "./dead_letters.js";
import { COUNTS, Plot, SPANS } from "./plot.js";
import { timeRange } from "./time_range.js";
import { deploysOf } from "./history.js";
import { Logs } from "./logs.js";
import { hotBuckets, running, slowestShard, versionsOf } from "./processor_status.js";
import { States } from "./states.js";
import { Table } from "./table.js";
import { Versions } from "./versions.js";

const FIGURES = [
  ["read", (processor) => `${rate(processor.events_in_per_s)}/s`, (processor) => `${bytes(processor.bytes_in_per_s)}/s`],
  ["written", (processor) => `${rate(processor.events_out_per_s)}/s`, (processor) => `${bytes(processor.bytes_out_per_s)}/s`],
  ["backlog (events)", (processor) => countOrUnknown(processor.backlog_events), (processor) => (processor.backlog_bytes ? `about ${bytes(processor.backlog_bytes)}` : "")],
  ["lag (time)", (processor) => (processor.backlog_events === 0 ? "–" : spanOrUnknown(processor.lag_s)), () => ""],
  ["watermark lag", (processor) => spanOrNone(processor.watermark_lag_s), (processor) => heldBy(processor)],
  ["late events", (processor) => countOrUnknown(processor.late_events), (processor) => (processor.dropped_events ? `${processor.dropped_events.toLocaleString("en")} dropped as too late` : "")],
  ["last checkpoint", (processor) => spanOrNone(processor.checkpoint_age_s), () => ""],
  ["state on disk", (processor) => (processor.state_bytes === null ? "–" : bytes(processor.state_bytes)), () => ""],
  ["oldest backup", (processor) => spanOrNone(processor.backup_age_s), () => ""],
  ["dead letters", (processor) => countOrUnknown(processor.dead_letters), () => ""],
];

function heldBy(processor) {
  const shard = slowestShard(processor);
  return shard ? `bucket ${shard.bucket}${shard.held_by ? `, by ${shard.held_by}` : ""}` : "";
}

export class ProcessorPage {
  constructor(state, name) {
    this.name = name;
    this.path = el("p", { class: "path" });
    this.top = el("section", { "aria-label": name }, el("p", { class: "crumb" }, el("a", { href: "#/" }, "← All processors")), el("h1", {}, name), this.path);
    this.findings = new Findings({ linked: false });
    this.figures = FIGURES.map(([title]) => ({ title, figure: el("span"), detail: el("small") }));
    this.timeRange = timeRange(() => this.update(this.state));
    this.plots = [
      [new Plot("Throughput (events/s)", COUNTS), [["read", "events_in_per_s"], ["written", "events_out_per_s"]]],
      [new Plot("Backlog (events)", COUNTS), [["backlog", "backlog_events"]]],
      [new Plot("Lag (time)", SPANS), [["lag", "lag_s"]]],
      [new Plot("Watermark lag", SPANS), [["watermark lag", "watermark_lag_s"]]],
    ];
    this.workers = new Table("Workers", [...WORKER_COLUMNS, ...figureColumns("worker", state.columns.worker)]);
    this.shards = new Table("Buckets", [...BUCKET_COLUMNS, ...figureColumns("shard", state.columns.shard)]);
    this.alerts = new Findings({ linked: false });
    this.actions = new Actions(name);
    this.versions = new Versions(name);
    this.logs = new Logs(name);
    this.states = new States(name);
    this.deadLetters = new DeadLetters(name);
    const lastHour = section("The last hour", el("div", { class: "plots" }, ...this.plots.map(([plot]) => plot.element)));
    lastHour.head.append(this.timeRange.element);
    this.missing = el("p", { class: "card" }, "No processor of this name has reported within the last hour.");
    this.sections = [
      this.findings.element,
      this.alerts.element,
      el("dl", { class: "figures" }, ...this.figures.map(({ title, figure, detail }) => el("div", {}, el("dt", {}, title), el("dd", {}, figure, detail)))),
      lastHour.element,
      section("Workers", this.workers.element).element,
      section("Buckets", this.shards.element).element,
    ];
    this.elements = [this.top, this.missing, ...this.sections, this.actions.element, this.versions.element, this.logs.element, this.states.element, this.deadLetters.element];
    this.update(state);
    this.logs.load();
    this.states.load();
    this.deadLetters.load();
  }

  close() {
    for (const [plot] of this.plots) plot.close();
    this.logs.close();
  }

  update(state) {
    this.state = state;
    const processor = state.status?.processors.find((other) => other.processor === this.name);
    for (const part of this.sections) part.hidden = !processor;
    this.missing.hidden = Boolean(processor) || !state.status;
    if (!processor) return;
    setText(this.path, `${processor.kind}: ${processor.inputs.join(" + ") || "nothing"} → ${[...processor.outputs, ...processor.sinks].join(" + ") || "nothing"} · ${plural(running(processor).length, "worker")}${processor.versions.length ? `, version ${versionsOf(processor)}` : ""}`);
    this.findings.update(state.status.findings.filter((finding) => finding.processor === this.name), "No findings.");
    const alerts = state.status.alerts.filter((alert) => alert.processor === this.name);
    this.alerts.element.hidden = !alerts.length;
    this.alerts.update(alertsAsFindings(alerts, state.status.at_ms), "");
    this.actions.update(state, processor);
    this.figures.forEach(({ figure, detail }, index) => {
      setText(figure, FIGURES[index][1](processor));
      setText(detail, FIGURES[index][2](processor));
    });
    const marks = deploysOf(state.history, this.name);
    for (const [plot, lines] of this.plots) {
      plot.update(state.history.times, lines.map(([name, field], color) => ({ name, color, values: state.history.of(this.name, field) })), this.timeRange.ms, marks);
    }
    this.workers.update(processor.workers.map((worker) => ({ key: worker.worker, worker, atMs: state.status.at_ms })));
    const hot = hotBuckets(processor);
    this.shards.update(processor.shards.map((shard) => ({ key: shard.bucket, shard, isHot: hot.has(shard.bucket) })));
    this.versions.update(processor);
    this.states.update(processor);
    this.deadLetters.update(processor);
  }
}

const whileRunning = (text) => ({ worker }) => (worker.end_reason ? "–" : text(worker));

const ofRunning = (value) => ({ worker }) => (worker.end_reason ? null : value(worker));

// The shares above which a figure needs attention.
const WARN_ABOVE = { blocked_share: 0.5 };

// The columns of the figures that the server names, after the others. The subject of a row is a worker or a shard.
const figureColumns = (subject, titles) => Object.entries(titles).map(([name, title]) => {
  const value = (row) => (row[subject].end_reason ? null : row[subject][name]);
  return { title, number: true, text: (row) => figureText(name, value(row)), tone: (row) => (value(row) > WARN_ABOVE[name] ? "warning" : null), value };
});

const WORKER_COLUMNS = [
  { title: "worker", text: ({ worker }) => worker.worker },
  { title: "host", text: ({ worker }) => worker.host },
  { title: "process", number: true, text: ({ worker }) => String(worker.pid), value: ({ worker }) => worker.pid },
  { title: "runs for", number: true, text: ({ worker, atMs }) => (worker.end_reason ? (worker.end_reason === "stopped" ? "stopped" : "failed") : span((atMs - worker.started_ms) / 1000)), tone: ({ worker }) => (worker.end_reason && worker.end_reason !== "stopped" ? "critical" : null), value: ({ worker }) => -worker.started_ms },
  { title: "last report", number: true, text: ({ worker }) => `${span(worker.report_age_s)} ago`, tone: ({ worker }) => (worker.is_silent ? "critical" : null), value: ({ worker }) => worker.report_age_s },
  { title: "deployment", text: ({ worker }) => worker.deployment || "manual" },
  { title: "buckets", text: ({ worker }) => worker.buckets.join(" ") },
  { title: "in/s", number: true, text: whileRunning((worker) => rate(worker.events_in_per_s)), value: ofRunning((worker) => worker.events_in_per_s) },
  { title: "out/s", number: true, text: whileRunning((worker) => rate(worker.events_out_per_s)), value: ofRunning((worker) => worker.events_out_per_s) },
  { title: "restarts in 1 h", number: true, text: ({ worker }) => count(worker.restarts), value: ({ worker }) => worker.restarts },
];

const BUCKET_COLUMNS = [
  { title: "bucket", number: true, text: ({ shard }) => String(shard.bucket), tone: ({ isHot }) => (isHot ? "warning" : null), value: ({ shard }) => shard.bucket },
  { title: "owner", text: ({ shard }) => shard.owner || "none", tone: ({ shard }) => (shard.owner || !shard.backlog_events ? null : "warning") },
  { title: "in/s", number: true, text: ({ shard }) => rate(shard.events_in_per_s), tone: ({ isHot }) => (isHot ? "warning" : null), value: ({ shard }) => shard.events_in_per_s },
  { title: "out/s", number: true, text: ({ shard }) => rate(shard.events_out_per_s), value: ({ shard }) => shard.events_out_per_s },
  { title: "backlog (events)", number: true, text: ({ shard }) => countOrUnknown(shard.backlog_events), value: ({ shard }) => shard.backlog_events },
  { title: "lag (time)", number: true, text: ({ shard }) => (shard.backlog_events === 0 ? "–" : spanOrUnknown(shard.lag_s)), value: ({ shard }) => shard.lag_s },
  { title: "low watermark", text: ({ shard }) => time(shard.low_watermark_ms) },
  { title: "note", text: noteOf, tone: ({ isHot }) => (isHot ? "warning" : null) },
  { title: "most frequent key", text: ({ shard }) => (shard.hot_key ? `${shard.hot_key} (${Math.round(shard.hot_key_share * 100)} %)` : "–"), value: ({ shard }) => -shard.hot_key_share },
];

function noteOf({ shard, isHot }) {
  const cause = shard.catching_up ? "catching up" : shard.idle ? "idle" : shard.held_by ? `held back by ${shard.held_by}` : "";
  return [isHot ? "hot" : "", cause].filter(Boolean).join(", ");
}
