// A table whose cells are updated in place.

import { el, setAttribute, setText } from "./dom.js";

// columns: {title, text(row), number, wide, href(row), tone(row), make(row)}; make returns a node once, and the table keeps it
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
    const removed = new Set(this.#rows.keys());
    rows.forEach((row, at) => {
      removed.delete(row.key);
      const tableRow = this.#rows.get(row.key) ?? this.#addRow(row);
      if (this.#body.children[at] !== tableRow.element) this.#body.insertBefore(tableRow.element, this.#body.children[at] ?? null);
      this.#columns.forEach((column, index) => updateCell(tableRow.cells[index], column, row));
    });
    for (const key of removed) {
      this.#rows.get(key).element.remove();
      this.#rows.delete(key);
    }
  }

  #addRow(row) {
    const cells = this.#columns.map((column, index) => cellOf(column, row, index === 0));
    const tableRow = { cells, element: el("tr", {}, ...cells.map((cell) => cell.element)) };
    this.#rows.set(row.key, tableRow);
    return tableRow;
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

function updateCell(cell, column, row) {
  if (column.make) return;
  if (column.href) setAttribute(cell.inner, "href", column.href(row));
  setText(cell.inner ?? cell.element, column.text(row));
  if (column.tone) setAttribute(cell.element, "class", [classOf(column), column.tone(row)].filter(Boolean).join(" ") || null);
}
