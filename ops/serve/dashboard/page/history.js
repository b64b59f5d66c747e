// The figures of the last hour: a list of times, and for each processor one list per figure.

const HISTORY_MS = 3600000;
const FIELDS = ["events_in_per_s", "events_out_per_s", "backlog_events", "lag_s", "watermark_lag_s", "version"];

export class History {
  constructor() {
    this.times = [];
    this.processors = new Map();
  }

  load(columns) {
    this.times = columns.at_ms;
    this.processors = new Map(Object.entries(columns.processors));
  }

  add(status) {
    if (this.times.length && status.at_ms <= this.times[this.times.length - 1]) return;
    this.times.push(status.at_ms);
    for (const { processor } of status.processors) this.#addProcessor(processor, this.times.length - 1);
    const byName = new Map(status.processors.map((processor) => [processor.processor, processor]));
    for (const [name, columns] of this.processors) {
      for (const field of FIELDS) columns[field].push(valueOf(byName.get(name), field));
    }
    this.#dropBefore(status.at_ms - HISTORY_MS);
  }

  of(name, field) {
    return this.processors.get(name)?.[field] ?? [];
  }

  #addProcessor(name, missing) {
    if (this.processors.has(name)) return;
    this.processors.set(name, Object.fromEntries(FIELDS.map((field) => [field, Array(missing).fill(null)])));
  }

  #dropBefore(startMs) {
    const outdated = this.times.findIndex((time) => time >= startMs);
    if (outdated < 1) return;
    this.times.splice(0, outdated);
    for (const columns of this.processors.values()) for (const field of FIELDS) columns[field].splice(0, outdated);
  }
}

function valueOf(processor, field) {
  return (field === "version" ? processor?.versions[0] : processor?.[field]) ?? null;
}

// Returns the deploys and rollbacks of a processor as {ms, text}: the times at which its workers began to run another version.
export function deploysOf(history, name) {
  const marks = [];
  let last = null;
  history.of(name, "version").forEach((version, at) => {
    if (version === null || version === last) return;
    if (last !== null || at > 0) marks.push({ ms: history.times[at], text: last !== null && version < last ? `back to version ${version}` : `version ${version}` });
    last = version;
  });
  return marks;
}
