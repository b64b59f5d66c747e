// Numbers, durations and times as text.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (number) => grouped.format(number);

export function rate(number) {
  return number !== 0 && Math.abs(number) < 10 ? number.toFixed(1) : count(number);
}

export function short(number) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(3))} ${unit}`;
  }
  return String(Number(number.toPrecision(3)));
}

export const countOrUnknown = (number) => (number === null ? "unknown" : count(number));

export const spanOrUnknown = (seconds) => (seconds === null ? "unknown" : span(seconds));

export function span(seconds) {
  for (const [name, length] of [["days", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${count(Math.floor(seconds / length))} ${name}`;
  }
  return `${Math.round(seconds)} s`;
}

export const spanOrNone = (seconds) => (seconds === null || seconds === undefined ? "–" : span(seconds));

export function bytes(number) {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (number >= size) return `${(number / size).toFixed(1)} ${unit}`;
  }
  return `${count(number)} B`;
}

// A figure in the unit that its name ends with.
export function figureText(name, value) {
  if (value === null || value === undefined) return "–";
  if (name.endsWith("_s")) return value < 2 ? `${Math.round(value * 1000)} ms` : span(value);
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_share")) return `${Math.round(value * 100)} %`;
  return Number.isInteger(value) ? count(value) : value.toFixed(2);
}

const text = (ms) => new Date(ms).toISOString();
export const clock = (ms) => text(ms).slice(11, 19);
export const minute = (ms) => text(ms).slice(11, 16);

export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  return Math.abs(ms) > 8.64e15 ? "ever" : text(ms).slice(0, 19).replace("T", " ");
}

export function windowOf(window) {
  if (!window) return "";
  const [start, end] = Array.isArray(window) ? window : [window.start, window.end];
  return Math.abs(start) > 8.64e15 ? "ever" : `${time(start)} to ${time(end)}`;
}

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value));
