// A table that sorts by any column, keeps its rows' elements, and is a list of cards on a phone.
// Its ARIA roles are explicit: shown as cards, browsers would not treat it as a table.

import { h, text, hint, Keyed } from './dom.js';

const ROWS = 200;

const order = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

/** Unknown values sort last in both directions. */
function compare(a, b, sign) {
  const [x, y] = [a ?? NaN, b ?? NaN];
  const [noX, noY] = [x !== x, y !== y];
  if (noX || noY) return noX - noY;
  return sign * (typeof x === 'string' ? order.compare(x, y) : x - y);
}

/**
 * Columns are `{label, sort(row), text(row)}`; `make()` instead of `text` returns an object with an
 * `element` and `update(row)`. `number` aligns, and sorts the largest first. `href(row)` links the
 * first column. A column without a value in any row is hidden.
 */
export class Table {
  constructor({ id, caption, columns, key, href, sort = 0, down = false }) {
    Object.assign(this, { id, columns, href, rows: [], limit: ROWS });
    const kept = Table.kept(id);
    this.sort = columns[kept?.[0]] ? { column: kept[0], down: kept[1] } : { column: sort, down };
    this.heads = columns.map((column, i) =>
      h('th', { scope: 'col', role: 'columnheader', class: column.number ? 'number' : null },
        h('button', { type: 'button', click: () => this.#by(i) }, column.label)));
    this.body = h('tbody', { role: 'rowgroup' });
    this.count = h('caption', {}, caption);
    this.caption = caption;
    this.more = h('button', { type: 'button', class: 'plain more', hidden: true, click: () => this.#more() });
    this.element = h('div', { class: 'tablebox' },
      h('table', { role: 'table' }, this.count, h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, this.heads)), this.body), this.more);
    this.keyed = new Keyed(this.body, key, () => this.#row());
    this.#heads();
  }

  static kept(id) {
    try {
      return JSON.parse(sessionStorage.getItem(`sort.${id}`));
    } catch {
      return null;
    }
  }

  update(rows) {
    this.rows = rows;
    this.#show();
  }

  /** The columns with a value in any row. */
  #filled() {
    this.empty = this.columns.map((column) => this.rows.length > 0 && this.rows.every((row) => column.sort(row) == null));
    this.heads.forEach((head, i) => {
      head.hidden = this.empty[i];
    });
  }

  #show() {
    this.#filled();
    const { column, down } = this.sort;
    const sign = down ? -1 : 1;
    const { sort } = this.columns[column];
    const sorted = [...this.rows].sort((a, b) => compare(sort(a), sort(b), sign));
    this.keyed.update(sorted.slice(0, this.limit));
    const left = sorted.length - this.limit;
    this.more.hidden = left <= 0;
    if (left > 0) text(this.more, `Show ${Math.min(left, ROWS)} more of ${left}`);
  }

  #more() {
    this.limit += ROWS;
    this.#show();
  }

  #by(column) {
    const down = this.sort.column === column ? !this.sort.down : Boolean(this.columns[column].number);
    this.sort = { column, down };
    try {
      sessionStorage.setItem(`sort.${this.id}`, JSON.stringify([column, down]));
    } catch {
      // Without storage, the order is lost when the page is closed.
    }
    this.#heads();
    this.#show();
  }

  #heads() {
    this.heads.forEach((head, i) => {
      const now = i === this.sort.column ? (this.sort.down ? 'descending' : 'ascending') : 'none';
      head.setAttribute('aria-sort', now);
    });
  }

  #row() {
    const cells = this.columns.map((column, i) => {
      const part = column.make?.();
      const link = i === 0 && this.href ? h('a') : null;
      const inner = part?.element ?? link;
      const tag = i === 0 ? 'th' : 'td';
      const element = h(tag, { scope: i === 0 ? 'row' : null, role: i === 0 ? 'rowheader' : 'cell', class: column.number ? 'number' : null, 'data-label': column.label }, inner);
      return { column, part, link, element };
    });
    return {
      element: h('tr', { role: 'row' }, cells.map((cell) => cell.element)),
      update: (row) => {
        for (const [i, { column, part, link, element }] of cells.entries()) {
          element.hidden = this.empty[i];
          if (part) part.update(row);
          else if (link) {
            text(link, column.text(row));
            link.setAttribute('href', this.href(row));
          } else text(element, column.text(row));
          if (column.title) hint(element, column.title(row));
        }
      },
    };
  }
}

/** A column of text. */
export const word = (label, get, more) => ({ label, sort: get, text: (row) => get(row) || '–', ...more });

/** A column of numbers, written by `write`. */
export const number = (label, get, write, more) => ({ label, number: true, sort: get, text: (row) => write(get(row)), ...more });

/** Whether any of the texts contains the search text. */
export function matches(filter, ...texts) {
  return !filter || texts.flat().some((t) => String(t ?? '').toLowerCase().includes(filter));
}
