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
      el("label", {}, "key", this.key), el("label", {}, "values of each bucket", this.limit), el("button", {}, "Look"));
    this.shown = el("div", { class: "shards", "aria-live": "polite" });
    const { element, head } = section("State", this.form, this.shown);
    head.append(el("span", { class: "quiet" }, "as it is saved on this machine; only read"));
    this.element = element;
    this.standing = null;
  }

  note(standing) {
    this.standing = standing;
  }

  #submitted(event) {
    event.preventDefault();
    this.look();
  }

  async look() {
    const query = new URLSearchParams({ key: this.key.value, limit: this.limit.value });
    try {
      const { shards, says } = await request(`${pathOf(this.processor, "state")}?${query}`);
      this.form.hidden = Boolean(says);
      if (says) return this.#tell(says);
      this.shown.replaceChildren(...this.#notHere(shards), ...shards.map((shard) => shardCard(shard, Boolean(this.key.value))));
    } catch (error) {
      this.form.hidden = true;
      this.#tell(error.message);
    }
  }

  #tell(says) {
    this.shown.replaceChildren(setProse(el("p", { class: "card quiet" }), says));
  }

  // Which buckets have their state elsewhere, as far as is known.
  #notHere(shards) {
    const here = new Set(shards.map((shard) => shard.bucket));
    const away = (this.standing?.shards ?? []).filter((shard) => !here.has(shard.bucket));
    if (!away.length) return shards.length ? [] : [el("p", { class: "card quiet" }, "Nothing is saved on this machine yet.")];
    const hosts = new Map((this.standing?.workers ?? []).map((worker) => [worker.worker, worker.host]));
    const where = [...new Set(away.map((shard) => (shard.owner ? `${shard.owner} on ${hosts.get(shard.owner)}` : "")).filter(Boolean))];
    return [el("p", { class: "card quiet" },
      `Of bucket ${away.map((shard) => shard.bucket).join(", ")} nothing is in the state folder of this machine. `,
      where.length ? `Open in worker ${where.join(", ")}: look there, or start the dashboard with the --dir of those workers.` : "Nobody has it open, or nothing was saved yet.")];
  }
}

function shardCard({ bucket, seen, problem }, byKey) {
  if (!seen) return el("p", { class: "card" }, `Bucket ${bucket}: ${problem || "it was removed just now"}`);
  const entries = [...seen.entries.map((entry) => ["", entry]), ...(seen.pending?.entries ?? []).map((entry) => ["prepared", entry])];
  const position = Object.entries(seen.position.offsets ?? {}).map(([name, offset]) => `${name} ${count(offset)}`).join(", ") || "nothing read";
  const marks = Object.entries(seen.watermarks).map(([name, ms]) => `${name} ${time(ms)}`).join(", ");
  const facts = [`at ${position}`, marks && `event time ${marks}`, seen.pending && `${plural(seen.pending.changes, "change")} prepared`].filter(Boolean);
  return el("details", { class: "card shard", open: entries.length > 0 && (byKey || bucket === 0) },
    el("summary", {}, el("b", {}, `Bucket ${bucket}`), ` · ${plural(entries.length, "value")} shown · ${facts.join(" · ")}`),
    entries.length ? values(entries) : el("p", { class: "quiet" }, "No value."),
    ...(seen.timers.length ? [timers(seen.timers)] : []));
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
