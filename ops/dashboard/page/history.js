// The last hour, in columns: a list of times, and for each processor a list for each figure.

const KEPT_MS = 3600000;
const FIELDS = ["rate_in", "rate_out", "behind", "behind_s", "watermark_lag_s"];

export class History {
  constructor() {
    this.times = [];
    this.processors = new Map();
  }

  load(columns) {
    this.times = columns.at_ms;
    this.processors = new Map(Object.entries(columns.processors));
  }

  add(picture) {
    if (this.times.length && picture.at_ms <= this.times[this.times.length - 1]) return;
    this.times.push(picture.at_ms);
    for (const one of picture.processors) this.#columnsOf(one.processor, this.times.length - 1);
    const seen = new Map(picture.processors.map((one) => [one.processor, one]));
    for (const [name, columns] of this.processors) {
      for (const field of FIELDS) columns[field].push(seen.get(name)?.[field] ?? null);
    }
    this.#forget(picture.at_ms - KEPT_MS);
  }

  of(name, field) {
    return this.processors.get(name)?.[field] ?? [];
  }

  #columnsOf(name, before) {
    if (this.processors.has(name)) return;
    this.processors.set(name, Object.fromEntries(FIELDS.map((field) => [field, Array(before).fill(null)])));
  }

  #forget(untilMs) {
    const old = this.times.findIndex((time) => time >= untilMs);
    if (old < 1) return;
    this.times.splice(0, old);
    for (const columns of this.processors.values()) for (const field of FIELDS) columns[field].splice(0, old);
  }
}
