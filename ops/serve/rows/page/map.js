// A map of the world: countries coloured by their values, or circles at latitudes and longitudes. Each leads to its own events.

import { el, svg } from "../shared/dom.js";
import { short } from "../shared/format.js";
import { COUNTRIES, HEIGHT, OTHER_LAND, WIDTH } from "./world.js";

const LEAST = 0.18; // the opacity of the smallest value
const SMALL = 9; // the radius of a country that is too small for an outline
const [MIN_RADIUS, MAX_RADIUS] = [6, 46];
const LAND = COUNTRIES.map(([, , , , path]) => path).join("") + OTHER_LAND;
const names = new Intl.DisplayNames(["en"], { type: "region" });

// Equal Earth (Šavrič, Patterson and Jenny, 2018); world.js has the outlines in the same coordinates.
const [A1, A2, A3, A4] = [1.340264, -0.081106, 0.000893, 0.003796];
const M = Math.sqrt(3) / 2;
const Y = 1.3173627591574; // the pole

export function positionOf(latitude, longitude) {
  const [phi, lambda] = [(latitude * Math.PI) / 180, (longitude * Math.PI) / 180];
  const theta = Math.asin(M * Math.sin(phi));
  const [t2, t6] = [theta ** 2, theta ** 6];
  const x = (lambda * Math.cos(theta)) / (M * (A1 + 3 * A2 * t2 + t6 * (7 * A3 + 9 * A4 * t2)));
  const y = theta * (A1 + A2 * t2 + t6 * (A3 + A4 * t2));
  const scale = HEIGHT / (2 * Y);
  return [WIDTH / 2 + x * scale, HEIGHT / 2 - y * scale];
}

const known = new Map();
for (const country of COUNTRIES) {
  const [code2, code3, number, name] = country;
  for (const key of [code2, code3, number, name, names.of(code2)]) if (key) known.set(plain(key), country);
}
for (const [alias, code] of [["uk", "GB"], ["great britain", "GB"], ["usa", "US"], ["holland", "NL"], ["south korea", "KR"], ["north korea", "KP"], ["ivory coast", "CI"]]) {
  known.set(alias, known.get(plain(code)));
}

function plain(text) {
  return String(text).trim().toLowerCase().normalize("NFD").replace(/[\u0300-\u036f.]/g, "").replace(/^the /, "").replaceAll("&", "and");
}

// The country of a code (DE, DEU, 276) or of an English name; undefined for another text.
export const countryOf = (text) => (text === null ? undefined : known.get(plain(typeof text === "number" ? String(text).padStart(3, "0") : text)));
export const countryName = ([code]) => names.of(code);

// Countries: [{country, name, value, text, href}]. Points are above outlines.
export function countryMap(places, label) {
  places.sort((one, other) => Number(!one.country[4]) - Number(!other.country[4]));
  const most = Math.max(...places.map(({ value }) => value)) || 1;
  return picture(label, places, most, ({ country, value }) => {
    const opacity = LEAST + (1 - LEAST) * Math.sqrt(Math.max(0, value) / most);
    const [, , , , path, latitude, longitude] = country;
    if (path) return svg("path", { d: path, "fill-opacity": opacity });
    const [cx, cy] = positionOf(latitude, longitude);
    return svg("circle", { cx, cy, r: SMALL, "fill-opacity": opacity });
  });
}

// Places: [{latitude, longitude, name, value, text, href}], the largest first, so that small circles are above large ones.
export function placeMap(places, label) {
  const most = Math.max(...places.map(({ value }) => value)) || 1;
  return picture(label, places, most, ({ latitude, longitude, value }) => {
    const [cx, cy] = positionOf(latitude, longitude);
    return svg("circle", { cx, cy, r: Math.max(MIN_RADIUS, MAX_RADIUS * Math.sqrt(Math.max(0, value) / most)), "fill-opacity": 0.6 });
  });
}

function picture(label, places, most, shapeOf) {
  const told = el("p", { class: "told", role: "status" }, "Move to a place, or press Tab, to read its value. Enter shows its events.");
  const links = places.map((place) => {
    const tell = () => { told.textContent = `${place.name}: ${place.text}`; };
    const shape = shapeOf(place);
    shape.append(svg("title", {}, `${place.name}: ${place.text}`));
    return svg("a", { href: place.href, "aria-label": `Only ${place.name}: ${place.text}`, on: { focus: tell, mouseenter: tell } }, shape);
  });
  const world = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-label": label, role: "group" },
    svg("path", { class: "land", d: LAND, "aria-hidden": "true" }), ...links);
  const legend = el("p", { class: "legend", "aria-hidden": "true" }, "0", el("span", { class: "scale" }), short(most));
  return el("figure", { class: "card map" }, world, el("div", { class: "line" }, told, legend));
}
