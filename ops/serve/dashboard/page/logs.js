// The last lines that a processor's workers have logged on the server's machine.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { plural } from "./format.js";

const REFRESH_MS = 2000;
const LEVEL = /\b(CRITICAL|ERROR|WARNING)\b|"level":\s*"(critical|error|warning)"/i;

export class Logs {
  #timer = null;
  #lines = [];

  constructor(processor) {
    this.processor = processor;
    const reload = { on: { change: () => this.load() } };
    this.worker = el("select", { name: "worker", ...reload }, el("option", { value: "" }, "all"));
    this.limit = el("select", { name: "lines", ...reload }, ...[100, 500].map((number) => el("option", {}, String(number))));
    this.text = el("input", { type: "search", name: "text", placeholder: "any text", autocomplete: "off", spellcheck: "false", on: { input: () => this.#show() } });
    this.follow = el("input", { type: "checkbox", name: "follow", on: { change: () => this.#schedule() } });
    this.form = el("form", { hidden: true, on: { submit: (event) => event.preventDefault() } },
      el("label", {}, "worker", this.worker), el("label", {}, "last lines", this.limit), el("label", {}, "contains", this.text), el("label", {}, this.follow, "follow"));
    this.summary = el("p", { class: "quiet", role: "status" });
    this.shown = el("div", { class: "card log", tabindex: "0", role: "region", "aria-label": "Log lines", hidden: true });
    const { element, head } = section("Logs", this.form, this.summary, this.shown);
    head.append(el("button", { type: "button", on: { click: () => this.load() } }, "Reload"));
    this.element = element;
  }

  close() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.follow.checked = false;
  }

  async load() {
    const query = new URLSearchParams({ worker: this.worker.value, limit: this.limit.value });
    try {
      const { workers, lines, message } = await request(`${pathOf(this.processor, "logs")}?${query}`);
      this.#offer(workers);
      this.#lines = lines;
      this.#show(message);
    } catch (error) {
      setProse(this.summary, error.message);
    }
    this.#schedule();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = this.follow.checked ? setTimeout(() => this.load(), REFRESH_MS) : null;
  }

  // Offers the workers with a log; a chosen worker stays chosen.
  #offer(workers) {
    this.form.hidden = !workers.length;
    if (this.worker.dataset.workers === workers.join()) return;
    this.worker.dataset.workers = workers.join();
    const chosen = this.worker.value;
    this.worker.replaceChildren(el("option", { value: "" }, "all"), ...workers.map((number) => el("option", { value: number, selected: String(number) === chosen }, String(number))));
  }

  #show(message = "") {
    const wanted = this.text.value.toLowerCase();
    const lines = this.#lines.filter((line) => line.text.toLowerCase().includes(wanted));
    const several = new Set(this.#lines.map((line) => line.worker)).size > 1;
    setProse(this.summary, message || `${wanted ? `${lines.length} of the` : "The"} last ${plural(this.#lines.length, "line")}, the newest at the end.`);
    this.shown.hidden = !lines.length;
    const atEnd = this.shown.scrollHeight - this.shown.scrollTop - this.shown.clientHeight < 40;
    this.shown.replaceChildren(...lines.map((line) => lineOf(line, several)));
    if (atEnd || !this.shown.dataset.scrolled) this.shown.scrollTop = this.shown.scrollHeight;
    this.shown.dataset.scrolled = "yes";
  }
}

function lineOf({ worker, text }, several) {
  const found = text.match(LEVEL);
  const level = (found?.[1] ?? found?.[2] ?? "").toLowerCase();
  return el("div", { class: level || null }, ...(several ? [el("span", { class: "quiet" }, `[${worker}] `)] : []), text);
}
