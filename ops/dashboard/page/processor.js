// The page of one processor: how it stands, its last hour, who runs it, what it keeps, and what it set aside.

import { el, section, setText } from "./dom.js";
import { Findings } from "./findings.js";
import { bytes, count, countOrUnknown, plural, rate, span, spanOrNone, spanOrUnknown, time } from "./format.js";
import { Letters } from "./dead_letters.js";
import { COUNTS, Plot, SPANS } from "./plot.js";
import { timeRange } from "./time_range.js";
import { holder, lastSaved, running } from "./processor_status.js";
import { States } from "./states.js";
import { Table } from "./table.js";

const FIGURES = [
  ["read", (one) => `${rate(one.rate_in)}/s`, (one) => `${bytes(one.bytes_in)}/s`],
  ["written", (one) => `${rate(one.rate_out)}/s`, (one) => `${bytes(one.bytes_out)}/s`],
  ["backlog (events)", (one) => countOrUnknown(one.behind), (one) => (one.behind_bytes ? `about ${bytes(one.behind_bytes)}` : "")],
  ["lag (time)", (one) => (one.behind === 0 ? "–" : spanOrUnknown(one.behind_s)), () => ""],
  ["watermark lag", (one) => spanOrNone(one.watermark_lag_s), (one) => heldBy(one)],
  ["last checkpoint", (one) => spanOrNone(lastSaved(one)), () => ""],
  ["oldest backup", (one) => spanOrNone(one.backup_age_s), () => ""],
  ["dead letters", (one) => countOrUnknown(one.dead_letters), () => ""],
];

function heldBy(one) {
  const shard = holder(one);
  return shard ? `bucket ${shard.bucket}${shard.held_by ? `, by ${shard.held_by}` : ""}` : "";
}

export class ProcessorPage {
  constructor(state, name) {
    this.name = name;
    this.path = el("p", { class: "path" });
    this.top = el("section", { "aria-label": name }, el("p", { class: "crumb" }, el("a", { href: "#/" }, "← All processors")), el("h1", {}, name), this.path);
    this.findings = new Findings({ linked: false });
    this.figures = FIGURES.map(([title]) => ({ title, figure: el("span"), beside: el("small") }));
    this.choice = timeRange(() => this.update(this.state));
    this.plots = [
      [new Plot("Throughput (events/s)", COUNTS), [["read", "rate_in"], ["written", "rate_out"]]],
      [new Plot("Backlog (events)", COUNTS), [["backlog", "behind"]]],
      [new Plot("Lag (time)", SPANS), [["lag", "behind_s"]]],
      [new Plot("Watermark lag", SPANS), [["watermark lag", "watermark_lag_s"]]],
    ];
    this.workers = new Table("Workers", WORKER_COLUMNS);
    this.shards = new Table("Buckets", BUCKET_COLUMNS);
    this.states = new States(name);
    this.letters = new Letters(name);
    const over = section("The last hour", el("div", { class: "plots" }, ...this.plots.map(([plot]) => plot.element)));
    over.head.append(this.choice.element);
    this.missing = el("p", { class: "card" }, "No processor of this name has reported within the last hour.");
    this.whole = [
      this.findings.element,
      el("dl", { class: "figures" }, ...this.figures.map(({ title, figure, beside }) => el("div", {}, el("dt", {}, title), el("dd", {}, figure, beside)))),
      over.element,
      section("Workers", this.workers.element).element,
      section("Buckets", this.shards.element).element,
    ];
    this.elements = [this.top, this.missing, ...this.whole, this.states.element, this.letters.element];
    this.update(state);
    this.states.look();
    this.letters.look();
  }

  close() {
    for (const [plot] of this.plots) plot.close();
  }

  update(state) {
    this.state = state;
    const one = state.picture?.processors.find((other) => other.processor === this.name);
    for (const part of this.whole) part.hidden = !one;
    this.missing.hidden = Boolean(one) || !state.picture;
    if (!one) return;
    setText(this.path, `${one.kind}: ${one.inputs.join(" + ") || "nothing"} → ${one.outputs.join(" + ") || "nothing"} · ${plural(running(one).length, "worker")}`);
    this.findings.update(state.picture.findings.filter((finding) => finding.processor === this.name), "No findings.");
    this.figures.forEach(({ figure, beside }, at) => {
      setText(figure, FIGURES[at][1](one));
      setText(beside, FIGURES[at][2](one));
    });
    for (const [plot, lines] of this.plots) {
      plot.update(state.history.times, lines.map(([name, field], color) => ({ name, color, values: state.history.of(this.name, field) })), this.choice.ms);
    }
    this.workers.update(one.workers.map((worker) => ({ key: worker.worker, worker, atMs: state.picture.at_ms })));
    this.shards.update(one.shards.map((shard) => ({ key: shard.bucket, shard })));
    this.states.note(one);
    this.letters.note(one);
  }
}

const whileItRuns = (text) => ({ worker }) => (worker.ended ? "–" : text(worker));

const WORKER_COLUMNS = [
  { title: "worker", text: ({ worker }) => worker.worker },
  { title: "host", text: ({ worker }) => worker.host },
  { title: "process", number: true, text: ({ worker }) => String(worker.pid) },
  { title: "runs for", number: true, text: ({ worker, atMs }) => (worker.ended ? (worker.ended === "stopped" ? "stopped" : "failed") : span((atMs - worker.started_ms) / 1000)), tone: ({ worker }) => (worker.ended && worker.ended !== "stopped" ? "critical" : null) },
  { title: "last heard", number: true, text: ({ worker }) => `${span(worker.silent_s)} ago`, tone: ({ worker }) => (!worker.ended && worker.silent_s > 20 ? "critical" : null) },
  { title: "deployment", text: ({ worker }) => worker.deployment || "manual" },
  { title: "buckets", text: ({ worker }) => worker.buckets.join(" ") },
  { title: "in/s", number: true, text: whileItRuns((worker) => rate(worker.rate_in)) },
  { title: "out/s", number: true, text: whileItRuns((worker) => rate(worker.rate_out)) },
  { title: "CPU", number: true, text: whileItRuns((worker) => `${Math.round(worker.cpu * 100)} %`) },
  { title: "memory", number: true, text: whileItRuns((worker) => bytes(worker.memory_bytes)) },
  { title: "checkpoint took", number: true, text: whileItRuns((worker) => `${Math.round(worker.saving_s * 1000)} ms`) },
  { title: "restarts in 1 h", number: true, text: ({ worker }) => count(worker.restarts) },
];

const BUCKET_COLUMNS = [
  { title: "bucket", text: ({ shard }) => String(shard.bucket) },
  { title: "owner", text: ({ shard }) => shard.owner || "none", tone: ({ shard }) => (shard.owner || !shard.behind ? null : "warning") },
  { title: "in/s", number: true, text: ({ shard }) => rate(shard.rate_in) },
  { title: "out/s", number: true, text: ({ shard }) => rate(shard.rate_out) },
  { title: "backlog (events)", number: true, text: ({ shard }) => countOrUnknown(shard.behind) },
  { title: "lag (time)", number: true, text: ({ shard }) => (shard.behind === 0 ? "–" : spanOrUnknown(shard.behind_s)) },
  { title: "event time", text: ({ shard }) => time(shard.low_ms) },
  { title: "", text: ({ shard }) => (shard.catching_up ? "catching up" : shard.idle ? "idle" : shard.held_by ? `held back by ${shard.held_by}` : "") },
  { title: "backup", number: true, text: ({ shard }) => spanOrNone(shard.backup_age_s) },
];
