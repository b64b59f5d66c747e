// The versions of a processor's deployment, if it was deployed from the server's machine.

import { pathOf, request } from "./api.js";
import { el, section, setProse } from "./dom.js";
import { time } from "./format.js";
import { Table } from "./table.js";

const RELOAD_MS = 10000;

const VERSION_COLUMNS = [
  { title: "version", text: ({ row }) => String(row.number) },
  { title: "status", text: ({ row }) => row.status, tone: ({ row }) => (row.status === "failed" ? "critical" : null) },
  { title: "deployed (UTC)", text: ({ row }) => time(row.time_ms) },
  { title: "by", text: ({ row }) => row.by },
  { title: "code", kind: "mono", text: ({ row }) => row.digest },
];

export class Versions {
  #shown = null;
  #loadedMs = 0;

  constructor(processor) {
    this.processor = processor;
    this.table = new Table("Versions", VERSION_COLUMNS);
    this.hint = setProse(el("p", { class: "quiet" }), `\`penstock rollback ${processor}\` returns to the last good version before the current one.`);
    this.element = section("Versions", this.table.element, this.hint).element;
    this.element.hidden = true;
  }

  // Loads the versions again if a worker runs another one, and from time to time: a rollout ends after its last worker has started.
  update(processor) {
    const shown = processor.versions.join();
    if (this.#shown === shown && Date.now() - this.#loadedMs < RELOAD_MS) return;
    this.#shown = shown;
    this.#loadedMs = Date.now();
    this.load();
  }

  async load() {
    try {
      const { versions } = await request(pathOf(this.processor, "versions"));
      this.element.hidden = !versions.length;
      this.hint.hidden = versions.length < 2;
      this.table.update(versions.map((row) => ({ key: row.number, row })));
    } catch (error) {
      this.element.hidden = false;
      this.hint.hidden = false;
      setProse(this.hint, error.message);
    }
  }
}
