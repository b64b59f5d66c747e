// A processor's dead letters, and dry runs of them.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { asText, count, time, windowOf } from "./format.js";
import { grid, timers } from "./states.js";

export class Letters {
  #known = null;
  #limit = 10;

  constructor(processor) {
    this.processor = processor;
    this.list = el("ol", { class: "letters" });
    this.said = el("p", { class: "quiet", role: "status" });
    this.more = el("button", { type: "button", hidden: true, on: { click: () => this.#older() } }, "Older ones");
    const { element, head } = section("Dead letters", this.said, this.list, el("p", {}, this.more));
    head.append(el("button", { type: "button", on: { click: () => this.look() } }, "Look again"));
    this.element = element;
  }

  // Asks again only where there are others than before.
  note(standing) {
    if (this.#known !== null && this.#known !== standing.dead_letters) this.look();
    this.#known = standing.dead_letters;
  }

  #older() {
    this.#limit += 20;
    this.look();
  }

  async look() {
    try {
      const { letters, can_try: canTry } = await request(`${pathOf(this.processor, "letters")}?limit=${this.#limit}`);
      setProse(this.said, letters.length ? `The newest ${letters.length}, with what they hold.${canTry ? " Trying one writes nothing, and changes no state." : " Start as `penstock dashboard APP` to try them again."}` : "None.");
      this.more.hidden = letters.length < this.#limit;
      const shown = new Map([...this.list.children].map((item) => [item.dataset.number, item]));
      this.list.replaceChildren(...letters.map((letter) => shown.get(String(letter.number)) ?? this.#letter(letter, canTry)));
    } catch (error) {
      setProse(this.said, error.message);
    }
  }

  #letter(letter, canTry) {
    const result = el("div", { role: "status" });
    const button = el("button", { type: "button", on: { click: () => this.#try(letter, button, result) } }, "Try again (dry run)");
    const item = el("li", { class: "card letter" },
      el("div", { class: "top" }, el("b", {}, `${letter.category}/${letter.bucket} @ ${count(letter.offset)}`),
        el("span", { class: "quiet" }, `set aside ${time(letter.at_ms)}${letter.key === null ? ", without key" : `, key ${letter.key}`}`),
        ...(canTry ? [button] : [])),
      setProse(el("p"), letter.reason), el("pre", {}, letter.value === null ? "(empty)" : asText(letter.value)), result);
    item.dataset.number = letter.number;
    return item;
  }

  async #try(letter, button, result) {
    button.disabled = true;
    result.textContent = "Trying, for ten seconds at most …";
    try {
      const trial = await request(pathOf(this.processor, `letters/${letter.number}/trial`), { method: "POST" });
      result.replaceChildren(trialCard(trial));
    } catch (error) {
      result.replaceChildren(setProse(el("p", { class: "trial" }), error.message));
    }
    button.disabled = false;
  }
}

function trialCard(trial) {
  return el("div", { class: "trial" },
    setProse(el("p", { class: `verdict ${trial.processed ? "good" : "bad"}` }), trial.says),
    ...(trial.over ? [el("p", { class: "quiet" }, `Tried over ${trial.over}. Nothing was written.`)] : [el("p", { class: "quiet" }, "Nothing was written.")]),
    ...(trial.trace ? [el("pre", {}, trial.trace)] : []),
    ...(trial.written.length ? [written(trial.written)] : []),
    ...(trial.changes.length ? [changes(trial.changes)] : []),
    ...(trial.timers.length ? [timers(trial.timers)] : []));
}

function written(records) {
  return grid("Would be written", ["to", "key", "record"], records.map((one) => [
    el("th", { scope: "row" }, one.category), el("td", {}, one.key), el("td", { class: "value" }, asText(one.record)),
  ]));
}

function changes(all) {
  const said = (entries) => entries.map((entry) => (entry.value === null ? "nothing" : `${entry.window ? `${windowOf(entry.window)}: ` : ""}${asText(entry.value)}`)).join("\n");
  return grid("Would change", ["state of", "before", "after"], all.map(({ before, after }) => [
    el("th", { scope: "row" }, after[0].key), el("td", { class: "value" }, said(before)), el("td", { class: "value" }, said(after)),
  ]));
}
