// The page's life: one stream of events from the server, one view at a time, by what stands after the # of the address.

import { el, setProse, setText } from "./dom.js";
import { clock } from "./format.js";
import { History } from "./history.js";
import { Overview } from "./overview.js";
import { ProcessorPage } from "./processor.js";

const SILENT_MS = 15000;
const state = { picture: null, history: new History(), trouble: null, connected: false, heardMs: 0, seenMs: 0 };
const content = document.getElementById("content");
const banner = document.getElementById("banner");
const live = document.getElementById("live");
let view = null;

function viewOf(hash) {
  const [, kind, name] = hash.match(/^#\/(processor)\/(.+)$/) ?? [];
  return kind ? new ProcessorPage(state, decodeURIComponent(name)) : new Overview(state);
}

function show() {
  view?.close();
  view = viewOf(location.hash);
  content.replaceChildren(...view.elements);
  const name = view.name ?? document.getElementById("title").textContent;
  document.title = name ? `${name} · Penstock` : "Penstock";
}

function update() {
  if (!state.picture) return tell();
  if (view) view.update(state);
  else show();
  tell();
}

// Says how fresh what is shown is; what is not stays, but pale.
function tell() {
  const lost = !state.connected || Date.now() - state.heardMs > SILENT_MS;
  const says = lost && state.heardMs ? "The connection to the dashboard is lost, and tried again. Is `penstock dashboard` still running?"
    : state.picture && Date.now() - state.seenMs > SILENT_MS ? `Nothing new since ${clock(state.picture.at_ms)}: the bus takes long to answer.`
    : state.trouble ? `Nothing can be seen${state.picture ? ` since ${clock(state.trouble.since_ms)}` : ""}: ${state.trouble.says}` : "";
  banner.hidden = !says;
  setProse(banner, says);
  live.className = says ? "off" : "on";
  const age = state.picture ? `as of ${clock(state.picture.at_ms)}` : "connecting …";
  setText(live, lost && state.picture ? `not connected, ${age}` : age);
  content.classList.toggle("stale", Boolean(says) && Boolean(state.picture));
}

function listen() {
  const events = new EventSource("events");
  const heard = (act) => (event) => {
    Object.assign(state, { connected: true, heardMs: Date.now() });
    act(JSON.parse(event.data));
    update();
  };
  events.addEventListener("title", heard((title) => setText(document.getElementById("title"), title)));
  events.addEventListener("history", heard((columns) => state.history.load(columns)));
  events.addEventListener("nothing", heard(() => {}));
  events.addEventListener("trouble", heard((trouble) => Object.assign(state, { trouble, seenMs: Date.now() })));
  events.addEventListener("picture", heard((picture) => {
    Object.assign(state, { picture, trouble: null, seenMs: Date.now() });
    state.history.add(picture);
  }));
  events.addEventListener("error", () => {
    state.connected = false;
    tell();
    // A browser gives up where it was answered with an error, such as by a proxy before a server that starts again.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}

window.addEventListener("hashchange", () => {
  if (!state.picture) return;
  show();
  window.scrollTo(0, 0);
  content.focus({ preventScroll: true });
});
setInterval(tell, 1000);
content.append(el("p", { class: "quiet" }, "Looking at the bus …"));
listen();
