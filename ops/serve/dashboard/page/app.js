// The page: one event stream from the server, and one view at a time. The fragment of the URL selects the view.

import { parse } from "./api.js";
import { el, setProse, setText } from "./dom.js";
import { clock, span } from "./format.js";
import { History } from "./history.js";
import { Overview } from "./overview.js";
import { ProcessorPage } from "./processor.js";

// The time without an event, or without a status, after which the page reports it.
const SILENT_MS = 15000;
const state = { visitor: null, columns: null, status: null, history: new History(), failure: null, connected: false, lastEventMs: 0, lastStatusMs: 0 };
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
  if (!state.status) return updateBanner();
  if (view) view.update(state);
  else show();
  updateBanner();
}

// Shows the age of the status, and the reason if it is outdated. An outdated status stays visible, but pale.
function updateBanner() {
  const lost = !state.connected || Date.now() - state.lastEventMs > SILENT_MS;
  const message = lost && state.lastEventMs ? "The connection to the dashboard is lost. The page retries. Check that `penstock serve dashboard` still runs."
    : state.status && Date.now() - state.lastStatusMs > SILENT_MS ? `No new status since ${clock(state.status.at_ms)}: Kafka answers slowly.`
    : state.failure ? failureOf(state) : "";
  banner.hidden = !message;
  setProse(banner, message);
  live.className = message ? "off" : "on";
  const age = state.status ? `as of ${clock(state.status.at_ms)}` : "connecting …";
  setText(live, lost && state.status ? `not connected, ${age}` : age);
  content.classList.toggle("stale", Boolean(message) && Boolean(state.status));
}

// The ages are those of the server's clock.
function failureOf({ status, failure }) {
  if (!status) return `No status: ${failure.message}`;
  const age = span(Math.max(0, (failure.at_ms - status.at_ms) / 1000));
  return `No status since ${clock(failure.since_ms)}: ${failure.message} Below is the last known status, ${age} old.`;
}

function listen() {
  const events = new EventSource("events");
  const on = (kind, handle) => events.addEventListener(kind, (event) => {
    Object.assign(state, { connected: true, lastEventMs: Date.now() });
    handle(parse(event.data));
    update();
  });
  on("visitor", (visitor) => {
    state.visitor = visitor;
    setText(document.getElementById("visitor"), visitor.user);
  });
  on("title", (title) => setText(document.getElementById("title"), title));
  on("columns", (columns) => Object.assign(state, { columns }));
  on("history", (columns) => state.history.load(columns));
  on("heartbeat", () => {});
  on("failure", (failure) => Object.assign(state, { failure, lastStatusMs: Date.now() }));
  on("status", (status) => {
    Object.assign(state, { status, failure: null, lastStatusMs: Date.now() });
    state.history.add(status);
  });
  events.addEventListener("error", () => {
    state.connected = false;
    updateBanner();
    // A browser does not reconnect after an error status, such as one from a proxy while the server restarts.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}

window.addEventListener("hashchange", () => {
  if (!state.status) return;
  show();
  window.scrollTo(0, 0);
  content.focus({ preventScroll: true });
});
setInterval(updateBanner, 1000);
content.append(el("p", { class: "quiet" }, "Reading the status …"));
listen();
