// The time range of all plots; all pages share it.

import { el } from "./dom.js";

const SPANS = [["5 min", 300000], ["15 min", 900000], ["1 h", 3600000]];
let chosen = 300000;

export function timeRange(changed) {
  const buttons = SPANS.map(([name, ms]) => el("button", { type: "button", on: { click: () => choose(ms) } }, name));
  const show = () => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(SPANS[at][1] === chosen)));
  const choose = (ms) => {
    chosen = ms;
    show();
    changed();
  };
  show();
  return {
    element: el("div", { class: "time-range", role: "group", "aria-label": "Time range" }, ...buttons),
    get ms() {
      return chosen;
    },
  };
}
