// Findings, the most severe first, and active alerts.

import { el, setAttribute, setProse, setText } from "./dom.js";
import { span } from "./format.js";

export const pageOf = (processor) => `#/processor/${encodeURIComponent(processor)}`;

export class Findings {
  #list = el("ul", { class: "findings" });
  #none = el("p", { class: "good" });
  #shown = "";

  constructor({ linked }) {
    this.linked = linked;
    this.element = el("div", {}, this.#none, this.#list);
  }

  update(findings, textWithout) {
    const shown = JSON.stringify(findings);
    this.#none.hidden = findings.length > 0;
    setText(this.#none, textWithout);
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
