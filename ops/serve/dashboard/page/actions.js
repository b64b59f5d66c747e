// What an operator may do with a processor: roll back, scale, silence an alert. Each is a command of `penstock`, whose output is shown.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { running } from "./processor_status.js";

const SPANS = ["30m", "2h", "8h", "1d"];

export class Actions {
  #alerts = "";

  constructor(processor) {
    this.processor = processor;
    this.workers = el("input", { type: "number", name: "workers", min: "1", max: "1000", required: true });
    this.rule = el("select", { name: "rule" });
    this.span = el("select", { name: "span" }, ...SPANS.map((span) => el("option", {}, span)));
    this.reason = el("input", { name: "reason", placeholder: "reason, for others", maxlength: "200" });
    this.result = el("pre", { class: "card", role: "status", hidden: true });
    this.silence = this.#form("Silence", () => ["silence", { rule: this.rule.value, span: this.span.value, reason: this.reason.value }],
      el("label", {}, "alert", this.rule), el("label", {}, "for", this.span), this.reason);
    this.forms = el("div", { class: "actions" },
      this.#form("Roll back", () => ["rollback", {}], el("span", {}, "to the last good version")),
      this.#form("Scale", () => ["scale", { workers: Number(this.workers.value) }], el("label", {}, "workers", this.workers)), this.silence);
    this.element = section("Operate", this.forms, this.result).element;
    this.element.hidden = true;
  }

  update(state, processor) {
    this.element.hidden = !state.visitor?.may_operate;
    if (!this.workers.value) this.workers.value = String(Math.max(1, running(processor).length));
    const rules = state.status.alerts.filter((alert) => alert.processor === this.processor && !alert.silenced).map((alert) => alert.rule);
    this.silence.hidden = !rules.length;
    if (this.#alerts === rules.join()) return;
    this.#alerts = rules.join();
    this.rule.replaceChildren(...rules.map((rule) => el("option", {}, rule)));
  }

  // A form whose button asks for a second click, because a slip of the finger must not roll a deployment back.
  #form(title, wanted, ...fields) {
    const button = el("button", {}, title);
    const back = el("button", { type: "button", hidden: true }, "Cancel");
    let asked = false;
    const ask = (now) => {
      asked = now;
      button.textContent = now ? `Really ${title.toLowerCase()}?` : title;
      back.hidden = !now;
    };
    back.addEventListener("click", () => ask(false));
    return el("form", { on: { submit: (event) => {
      event.preventDefault();
      if (!asked) return ask(true);
      ask(false);
      this.#run(...wanted());
    } } }, ...fields, button, back);
  }

  async #run(operation, body) {
    for (const button of this.forms.querySelectorAll("button")) button.disabled = true;
    this.result.hidden = false;
    setProse(this.result, `${operation} runs. A rollout takes up to two minutes for each worker …`);
    try {
      const { done, output } = await request(pathOf(this.processor, operation), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      setProse(this.result, output || (done ? "Done." : "It failed without a message."));
    } catch (error) {
      setProse(this.result, error.message);
    }
    for (const button of this.forms.querySelectorAll("button")) button.disabled = false;
  }
}
