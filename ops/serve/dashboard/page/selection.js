// The processors that the start page shows, and their groups. The choice stays when the page changes.

import { el, setText } from "./dom.js";
import { running } from "./processor_status.js";

const chosen = { words: "", group: "none" };

const GROUPS = {
  none: () => undefined,
  state: (processor) => processor.state,
  "name up to the last dot": (processor) => processor.processor.split(".").slice(0, -1).join("."),
  input: (processor) => processor.inputs.join(" + "),
  host: (processor) => [...new Set(running(processor).map((worker) => worker.host))].sort().join(", "),
};

export class Selection {
  constructor(changed) {
    const choose = (name) => (event) => {
      chosen[name] = event.target.value;
      changed();
    };
    this.words = el("input", { type: "search", name: "search", value: chosen.words, placeholder: "name, category, state, host", autocomplete: "off", spellcheck: "false", on: { input: choose("words") } });
    this.group = el("select", { name: "group", on: { change: choose("group") } }, ...Object.keys(GROUPS).map((name) => el("option", { selected: name === chosen.group }, name)));
    this.count = el("span", { class: "quiet", role: "status" });
    this.element = el("form", { class: "selection", role: "search", on: { submit: (event) => event.preventDefault() } },
      el("label", {}, "search", this.words), el("label", {}, "group by", this.group), this.count);
    // As in many pages, "/" goes to the search.
    this.onKey = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
      event.preventDefault();
      this.words.focus();
    };
    document.addEventListener("keydown", this.onKey);
  }

  close() {
    document.removeEventListener("keydown", this.onKey);
  }

  // Returns the processors that contain all words of the search.
  select(processors) {
    const words = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = processors.filter((processor) => words.every((word) => textOf(processor).includes(word)));
    setText(this.count, words.length ? `${found.length} of ${processors.length} processors` : "");
    return found;
  }

  groupOf(processor) {
    return GROUPS[chosen.group](processor);
  }
}

function textOf({ processor, kind, state, inputs, outputs, sinks, workers }) {
  return [processor, kind, state, ...inputs, ...outputs, ...sinks, ...workers.map((worker) => worker.host)].join("\n").toLowerCase();
}
