// A table whose cells are changed in place, row by row.

import { el, setAttribute, setText } from "./dom.js";

// columns: {title, text(row), number, wide, href(row), tone(row), make(row): a node that is made once and kept}
export class Table {
  #columns;
  #rows = new Map();
  #body = el("tbody");

  constructor(label, columns) {
    this.#columns = columns;
    const heads = columns.map((column) => el("th", { scope: "col", class: classOf(column) }, column.title));
    this.element = el("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...heads)), this.#body));
  }

  update(rows) {
    const gone = new Set(this.#rows.keys());
    rows.forEach((row, at) => {
      gone.delete(row.key);
      const shown = this.#rows.get(row.key) ?? this.#added(row);
      if (this.#body.children[at] !== shown.element) this.#body.insertBefore(shown.element, this.#body.children[at] ?? null);
      this.#columns.forEach((column, index) => change(shown.cells[index], column, row));
    });
    for (const key of gone) {
      this.#rows.get(key).element.remove();
      this.#rows.delete(key);
    }
  }

  #added(row) {
    const cells = this.#columns.map((column, index) => cellOf(column, row, index === 0));
    const shown = { cells, element: el("tr", {}, ...cells.map((cell) => cell.element)) };
    this.#rows.set(row.key, shown);
    return shown;
  }
}

function classOf(column) {
  return [column.number && "number", column.wide && "wide", column.kind].filter(Boolean).join(" ") || null;
}

function cellOf(column, row, first) {
  const inner = column.make ? column.make(row) : column.href ? el("a") : null;
  const element = el(first ? "th" : "td", { class: classOf(column), scope: first ? "row" : null }, ...(inner ? [inner] : []));
  return { element, inner };
}

function change(cell, column, row) {
  if (column.make) return;
  if (column.href) setAttribute(cell.inner, "href", column.href(row));
  setText(cell.inner ?? cell.element, column.text(row));
  if (column.tone) setAttribute(cell.element, "class", [classOf(column), column.tone(row)].filter(Boolean).join(" ") || null);
}
