// A processor's dead letters, and dry runs of them.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { asText, count, time, windowOf } from "./format.js";
import { grid, timers } from "./states.js";

export class DeadLetters {
  #count = null;
  #limit = 10;

  constructor(processor) {
    this.processor = processor;
    this.list = el("ol", { class: "dead-letters" });
    this.summary = el("p", { class: "quiet", role: "status" });
    this.more = el("button", { type: "button", hidden: true, on: { click: () => this.#older() } }, "Older dead letters");
    const { element, head } = section("Dead letters", this.summary, this.list, el("p", {}, this.more));
    head.append(el("button", { type: "button", on: { click: () => this.load() } }, "Reload"));
    this.element = element;
  }

  // Loads the list again if the number of dead letters has changed.
  update(processor) {
    if (this.#count !== null && this.#count !== processor.dead_letters) this.load();
    this.#count = processor.dead_letters;
  }

  #older() {
    this.#limit += 20;
    this.load();
  }

  async load() {
    try {
      const { dead_letters: letters, can_dry_run: canDryRun } = await request(`${pathOf(this.processor, "dead-letters")}?limit=${this.#limit}`);
      const hint = canDryRun ? "A dry run writes nothing, and changes no state." : "For dry runs, start as `penstock serve dashboard APP`.";
      setProse(this.summary, letters.length ? `The newest ${letters.length}, with their messages. ${hint}` : "None.");
      this.more.hidden = letters.length < this.#limit;
      const shown = new Map([...this.list.children].map((item) => [item.dataset.offset, item]));
      this.list.replaceChildren(...letters.map((letter) => shown.get(String(letter.dead_letter_offset)) ?? this.#card(letter, canDryRun)));
    } catch (error) {
      setProse(this.summary, error.message);
    }
  }

  #card(letter, canDryRun) {
    const result = el("div", { role: "status" });
    const button = el("button", { type: "button", on: { click: () => this.#dryRun(letter, button, result) } }, "Dry run");
    const item = el("li", { class: "card dead-letter" },
      el("div", { class: "top" }, el("b", {}, `${letter.category}/${letter.bucket} @ ${count(letter.offset)}`),
        el("span", { class: "quiet" }, `rejected ${time(letter.at_ms)}${letter.key === null ? ", without key" : `, key ${letter.key}`}`),
        ...(canDryRun ? [button] : [])),
      setProse(el("p"), letter.reason), el("pre", {}, letter.value === null ? "(empty)" : asText(letter.value)), result);
    item.dataset.offset = letter.dead_letter_offset;
    return item;
  }

  async #dryRun(letter, button, result) {
    button.disabled = true;
    result.textContent = "Running, for ten seconds at most …";
    try {
      const dryRun = await request(pathOf(this.processor, `dead-letters/${letter.dead_letter_offset}/dry-run`), { method: "POST" });
      result.replaceChildren(resultCard(dryRun));
    } catch (error) {
      result.replaceChildren(setProse(el("p", { class: "dry-run" }), error.message));
    }
    button.disabled = false;
  }
}

function resultCard(dryRun) {
  const source = dryRun.state_source ? `It used ${dryRun.state_source}. Nothing was written.` : "Nothing was written.";
  return el("div", { class: "dry-run" },
    setProse(el("p", { class: `verdict ${dryRun.processed ? "good" : "bad"}` }), dryRun.message),
    el("p", { class: "quiet" }, source),
    ...(dryRun.traceback ? [el("pre", {}, dryRun.traceback)] : []),
    ...(dryRun.outputs.length ? [outputTable(dryRun.outputs)] : []),
    ...(dryRun.state_changes.length ? [changeTable(dryRun.state_changes)] : []),
    ...(dryRun.timers.length ? [timers(dryRun.timers)] : []));
}

function outputTable(outputs) {
  return grid("Outputs", ["category", "key", "record"], outputs.map((output) => [
    el("th", { scope: "row" }, output.category), el("td", {}, output.key), el("td", { class: "value" }, asText(output.record)),
  ]));
}

function changeTable(changes) {
  const text = (entry) => (entry.value === null ? "no value" : `${entry.window ? `${windowOf(entry.window)}: ` : ""}${asText(entry.value)}`);
  const lines = (entries) => entries.map(text).join("\n");
  return grid("State changes", ["key", "before", "after"], changes.map(({ before, after }) => [
    el("th", { scope: "row" }, after[0].key), el("td", { class: "value" }, lines(before)), el("td", { class: "value" }, lines(after)),
  ]));
}
