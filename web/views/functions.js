// The functions in a table.

import { h, route } from '../dom.js';
import { Spark } from '../chart.js';
import { card, nothing } from '../parts.js';
import { Table, word, number, matches } from '../table.js';
import * as format from '../format.js';

/** The part of a function's calls that failed in the last second. */
export const failing = (f) => (f.rate > 0 ? f.errors_rate / f.rate : f.rate === 0 ? 0 : NaN);

/** The devices that it is loaded on, shortened. */
export function places(f) {
  const loaded = f.placements.filter((p) => p.loaded);
  const name = (p) => (p.device ? `${p.node} / ${p.device}` : p.node);
  if (!loaded.length) return 'nowhere';
  return loaded.slice(0, 3).map(name).join(', ') + (loaded.length > 3 ? ` and ${loaded.length - 3} more` : '');
}

export class FunctionTable {
  constructor(look, id) {
    this.look = look;
    this.none = nothing('No function yet', 'Deploy one and call it with curl:',
      'baltra function init hello', 'baltra function deploy hello');
    this.table = new Table({
      id: `functions.${id}`,
      caption: 'Functions',
      key: (f) => f.name,
      href: (f) => route('functions', f.name),
      sort: 1,
      down: true,
      columns: [
        word('Name', (f) => f.name, { title: (f) => f.description }),
        number('Requests / s', (f) => f.rate, format.rate),
        { label: 'Trend', sort: (f) => f.rate, number: true, make: () => new Trend(look) },
        number('p50', (f) => f.p50_us, format.micros),
        number('p99', (f) => f.p99_us, format.micros),
        number('Errors', failing, format.percent),
        number('Waiting', (f) => f.queued, format.count),
        number('Replicas', (f) => f.replicas, format.count),
        number('Cold starts', (f) => f.cold_starts, format.count),
        word('Loaded on', places),
        word('Tenant', (f) => f.tenant),
      ],
    });
    this.missing = h('p', { class: 'waiting', hidden: true }, 'No function matches the filter.');
    this.element = h('div', {}, this.table.element, this.none, this.missing);
  }

  update() {
    const { store, filter } = this.look;
    const all = store.state.functions;
    const rows = all.filter((f) => matches(filter, f.name, f.description, f.tenant, f.implementations, places(f)));
    this.none.hidden = all.length > 0;
    this.missing.hidden = all.length === 0 || rows.length > 0;
    this.table.element.hidden = rows.length === 0;
    this.table.update(rows);
  }
}

class Trend {
  constructor(look) {
    this.look = look;
    this.spark = new Spark(0);
    this.element = this.spark.element;
  }

  update(f) {
    this.spark.update(this.look.function(f, 'rate'));
  }
}

export class Functions {
  constructor(look) {
    this.table = new FunctionTable(look, 'all');
    this.element = h('div', {}, h('h1', {}, 'Functions'), card(null, this.table.element));
  }

  update() {
    this.table.update();
  }
}
