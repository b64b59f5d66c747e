// A table whose cells are updated in place, in groups or not. A click on a head sorts; on a phone each row is a card with the titles beside its values.

import { el, setAttribute, setText } from "./dom.js";

// columns: {title, text(row), number, href(row), tone(row), make(row), value(row)}; make returns a node once, and the table keeps it.
// value returns what a column sorts by; without it, the text does.
// groupText: the text of the head of a group, from its rows.
export class Table {
  #columns;
  #rows = new Map();
  #groups = new Map();
  #folded = new Set();
  #body = el("tbody");
  #shown = [];
  #sort = { column: -1, descending: false };

  constructor(label, columns, groupText = null) {
    this.#columns = columns;
    this.groupText = groupText;
    this.heads = columns.map((column, index) => el("th", { scope: "col", class: classOf(column) },
      ...(column.title ? [el("button", { type: "button", class: "sort", on: { click: () => this.sortBy(index) } }, column.title)] : [])));
    this.element = el("div", { class: "card scroll rows", tabindex: "0", role: "region", "aria-label": label },
      el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, ...this.heads)), this.#body));
  }

  // Sorts by a column: first the way in which the interesting end comes first, then the other way, then as given.
  sortBy(index) {
    const first = Boolean(this.#columns[index].number);
    const { column, descending } = this.#sort;
    if (column !== index) this.#sort = { column: index, descending: first };
    else if (descending === first) this.#sort = { column: index, descending: !first };
    else this.#sort = { column: -1, descending: false };
    this.heads.forEach((head, at) => setAttribute(head, "aria-sort", at !== this.#sort.column ? null : this.#sort.descending ? "descending" : "ascending"));
    this.update(this.#shown);
  }

  // rows: {key, group, …}; a group is a name, and rows without one stay together.
  update(rows) {
    this.#shown = rows;
    const placed = [];
    const removed = new Set([...this.#rows.keys(), ...this.#groups.keys()]);
    for (const [group, members] of grouped(rows)) {
      if (group !== undefined) {
        const head = this.#groups.get(`group ${group}`) ?? this.#addGroup(group);
        removed.delete(`group ${group}`);
        setText(head.text, `${group || "none"}: ${this.groupText(members)}`);
        setAttribute(head.button, "aria-expanded", String(!this.#folded.has(group)));
        placed.push(head.element);
        if (this.#folded.has(group)) continue;
      }
      for (const row of this.#sorted(members)) {
        removed.delete(row.key);
        const tableRow = this.#rows.get(row.key) ?? this.#addRow(row);
        this.#columns.forEach((column, index) => updateCell(tableRow.cells[index], column, row));
        placed.push(tableRow.element);
      }
    }
    placed.forEach((element, at) => {
      if (this.#body.children[at] !== element) this.#body.insertBefore(element, this.#body.children[at] ?? null);
    });
    for (const key of removed) {
      (this.#rows.get(key) ?? this.#groups.get(key)).element.remove();
      this.#rows.delete(key);
      this.#groups.delete(key);
    }
  }

  #sorted(rows) {
    const column = this.#columns[this.#sort.column];
    if (!column) return rows;
    const sign = this.#sort.descending ? -1 : 1;
    const value = column.value ?? column.text;
    return [...rows].sort((left, right) => compare(value(left), value(right), sign));
  }

  #addRow(row) {
    const cells = this.#columns.map((column, index) => cellOf(column, row, index === 0));
    const tableRow = { cells, element: el("tr", {}, ...cells.map((cell) => cell.element)) };
    this.#rows.set(row.key, tableRow);
    return tableRow;
  }

  #addGroup(group) {
    const text = el("span");
    const button = el("button", { type: "button", class: "fold", on: { click: () => this.#fold(group) } }, text);
    const head = { text, button, element: el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: this.#columns.length }, button)) };
    this.#groups.set(`group ${group}`, head);
    return head;
  }

  #fold(group) {
    if (!this.#folded.delete(group)) this.#folded.add(group);
    this.update(this.#shown);
  }
}

function grouped(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
  return [...groups].sort(([left], [right]) => compare(left, right, 1));
}

// Unknown values come last, whatever the direction.
function compare(left, right, sign) {
  const [noLeft, noRight] = [left === null || left === undefined, right === null || right === undefined];
  if (noLeft || noRight) return noLeft - noRight;
  if (typeof left === "number" && typeof right === "number") return sign * (left - right);
  return sign * String(left).localeCompare(String(right), "en", { numeric: true });
}

function classOf(column) {
  return [column.number && "number", column.kind].filter(Boolean).join(" ") || null;
}

function cellOf(column, row, first) {
  const inner = column.make ? column.make(row) : column.href ? el("a") : null;
  const element = el(first ? "th" : "td", { class: classOf(column), scope: first ? "row" : null, "data-title": first ? null : column.title }, ...(inner ? [inner] : []));
  return { element, inner };
}

function updateCell(cell, column, row) {
  if (column.make) return;
  if (column.href) setAttribute(cell.inner, "href", column.href(row));
  setText(cell.inner ?? cell.element, column.text(row));
  if (column.tone) setAttribute(cell.element, "class", [classOf(column), column.tone(row)].filter(Boolean).join(" ") || null);
}
