// Creation and update of elements. Data from Kafka is set as text, and never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Sets only a changed text, so that the updates every two seconds neither flicker nor lose a selection.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Sets a text in which `backquotes` mark code.
export function setProse(node, text) {
  if (node.dataset.text === text) return node;
  node.dataset.text = text;
  node.replaceChildren(...text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part)));
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
