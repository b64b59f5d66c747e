// A processor's state by bucket, read on request.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { asText, count, plural, time, windowOf } from "./format.js";

export class States {
  constructor(processor) {
    this.processor = processor;
    this.key = el("input", { name: "key", placeholder: "any", autocomplete: "off", spellcheck: "false" });
    this.limit = el("select", { name: "limit" }, ...[20, 100, 500].map((number) => el("option", {}, String(number))));
    this.form = el("form", { on: { submit: (event) => this.#submitted(event) } },
      el("label", {}, "key", this.key), el("label", {}, "values per bucket", this.limit), el("button", {}, "Show"));
    this.shown = el("div", { class: "shards", "aria-live": "polite" });
    const { element, head } = section("State", this.form, this.shown);
    head.append(el("span", { class: "quiet" }, "saved on this machine; read only"));
    this.element = element;
    this.status = null;
  }

  update(processor) {
    this.status = processor;
  }

  #submitted(event) {
    event.preventDefault();
    this.load();
  }

  async load() {
    const query = new URLSearchParams({ key: this.key.value, limit: this.limit.value });
    try {
      const { shards, message } = await request(`${pathOf(this.processor, "state")}?${query}`);
      this.form.hidden = Boolean(message);
      if (message) return this.#showMessage(message);
      this.shown.replaceChildren(...this.#elsewhere(shards), ...shards.map((shard) => shardCard(shard, Boolean(this.key.value))));
    } catch (error) {
      this.form.hidden = true;
      this.#showMessage(error.message);
    }
  }

  #showMessage(message) {
    this.shown.replaceChildren(setProse(el("p", { class: "card quiet" }), message));
  }

  // The buckets whose state is not on this machine, with their owners.
  #elsewhere(shards) {
    const local = new Set(shards.map((shard) => shard.bucket));
    const missing = (this.status?.shards ?? []).filter((shard) => !local.has(shard.bucket));
    if (!missing.length) return shards.length ? [] : [el("p", { class: "card quiet" }, "This machine has no saved state yet.")];
    const hosts = new Map((this.status?.workers ?? []).map((worker) => [worker.worker, worker.host]));
    const owners = [...new Set(missing.map((shard) => (shard.owner ? `${shard.owner} on ${hosts.get(shard.owner)}` : "")).filter(Boolean))];
    return [el("p", { class: "card quiet" },
      `The state folder of this machine has no state of bucket ${missing.map((shard) => shard.bucket).join(", ")}. `,
      owners.length ? `The owner is worker ${owners.join(", ")}. Start the dashboard there, or with the --dir of the owner.` : "No worker owns the bucket, or its worker has saved nothing yet.")];
  }
}

function shardCard({ bucket, state, problem }, byKey) {
  if (!state) return el("p", { class: "card" }, `Bucket ${bucket}: ${problem || "its state was removed meanwhile"}`);
  const entries = [...state.entries.map((entry) => ["", entry]), ...(state.pending?.entries ?? []).map((entry) => ["prepared", entry])];
  const position = Object.entries(state.position.offsets ?? {}).map(([name, offset]) => `${name} ${count(offset)}`).join(", ") || "no event read";
  const watermarks = Object.entries(state.watermarks).map(([name, ms]) => `${name} ${time(ms)}`).join(", ");
  const facts = [`at ${position}`, watermarks && `watermarks ${watermarks}`, state.pending && `${plural(state.pending.changes, "change")} prepared`].filter(Boolean);
  return el("details", { class: "card shard", open: entries.length > 0 && (byKey || bucket === 0) },
    el("summary", {}, el("b", {}, `Bucket ${bucket}`), ` · ${plural(entries.length, "value")} shown · ${facts.join(" · ")}`),
    entries.length ? values(entries) : el("p", { class: "quiet" }, "No value."),
    ...(state.timers.length ? [timers(state.timers)] : []));
}

function values(entries) {
  const windows = entries.some(([, entry]) => entry.window);
  const heads = ["key", ...(windows ? ["window (UTC)"] : []), "value"];
  return grid("Values", heads, entries.map(([kind, entry]) => [
    el("th", { scope: "row" }, entry.key, ...(kind ? [el("div", { class: "quiet" }, kind)] : [])),
    ...(windows ? [el("td", {}, windowOf(entry.window))] : []),
    el("td", { class: "value" }, entry.value === null ? "removed" : asText(entry.value)),
  ]));
}

export function timers(due) {
  return grid("Timers", ["timer of", "due (UTC)", "by", "tag"], due.map(([key, [at, tag, clock]]) => [
    el("th", { scope: "row" }, key), el("td", {}, time(at)), el("td", {}, clock), el("td", {}, tag),
  ]));
}

export function grid(label, heads, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", { "aria-label": label },
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells)))));
}
