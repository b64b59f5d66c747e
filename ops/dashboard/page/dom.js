// Elements made by hand. What comes from the bus is only ever set as text, never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Nothing is touched that stays as it is: a page that is updated every two seconds must not flicker, nor lose a selection.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Text with `commands` in it, which are shown as such.
export function setProse(node, text) {
  if (node.dataset.said === text) return node;
  node.dataset.said = text;
  node.replaceChildren(...text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part)));
  return node;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function section(title, ...content) {
  const head = el("div", { class: "head" }, el("h2", {}, title));
  return { element: el("section", { "aria-label": title }, head, ...content), head };
}
