// Findings, the most severe first, and active alerts.

import { el, setAttribute, setProse, setText } from "./dom.js";
import { span } from "./format.js";

// The most severe come first, so a long list begins with what matters.
const AT_FIRST = 20;

export const pageOf = (processor) => `#/processor/${encodeURIComponent(processor)}`;

export class Findings {
  #list = el("ul", { class: "findings" });
  #none = el("p", { class: "good" });
  #shown = "";
  #all = false;

  constructor({ linked }) {
    this.linked = linked;
    this.more = el("button", { type: "button", hidden: true, on: { click: () => this.#toggle() } });
    this.element = el("div", {}, this.#none, this.#list, this.more);
  }

  #toggle() {
    this.#all = !this.#all;
    this.update(...this.last);
  }

  update(found, textWithout) {
    this.last = [found, textWithout];
    const findings = this.#all ? found : found.slice(0, AT_FIRST);
    const shown = JSON.stringify(findings);
    this.#none.hidden = findings.length > 0;
    setText(this.#none, textWithout);
    this.more.hidden = found.length <= AT_FIRST;
    setText(this.more, this.#all ? `Show the first ${AT_FIRST}` : `Show all ${found.length}`);
    if (shown === this.#shown) return;
    if (!this.#updateLines(findings)) this.#list.replaceChildren(...findings.map((finding) => this.#line(finding)));
    this.#shown = shown;
  }

  // Updates the lines in place if only figures have changed, so that a focused link keeps the focus. Returns whether it did.
  #updateLines(findings) {
    const lines = [...this.#list.children];
    if (lines.length !== findings.length || lines.some((line, index) => line.dataset.key !== keyOf(findings[index]))) return false;
    lines.forEach((line, index) => {
      setAttribute(line, "class", `finding ${findings[index].severity}`);
      setProse(line.lastChild, findings[index].message);
    });
    return true;
  }

  #line(finding) {
    const name = this.linked ? el("a", { href: pageOf(finding.processor) }, finding.processor) : el("span", { class: "kind" }, finding.kind);
    const line = el("li", { class: `finding ${finding.severity}` }, el("span", { class: "severity" }, finding.severity),
      el("span", {}, name, ...(this.linked ? [el("div", { class: "quiet" }, finding.kind)] : [])), setProse(el("span"), finding.message));
    line.dataset.key = keyOf(finding);
    return line;
  }
}

const keyOf = (finding) => JSON.stringify([finding.processor, finding.kind, finding.severity, finding.message.slice(0, 24)]);

// Alerts, in the form of findings.
export function alertsAsFindings(alerts, nowMs) {
  return alerts.map((alert) => ({
    severity: alert.silenced ? "note" : alert.firing ? "critical" : "warning",
    kind: alert.rule,
    processor: alert.processor,
    message: `${alert.silenced ? "Silenced. " : alert.firing ? "" : "Not yet fired. "}Since ${span((nowMs - alert.since_ms) / 1000)}: ${alert.message}`,
  }));
}
