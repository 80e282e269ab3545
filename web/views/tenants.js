// Usage by tenant, the basis of billing.

import { h } from '../dom.js';
import { Bar, card, nothing } from '../parts.js';
import { Table, word, number, matches } from '../table.js';
import * as format from '../format.js';

export class Tenants {
  constructor(look) {
    this.look = look;
    this.none = nothing('No tenant yet', 'Add one, and give its token to its users:', 'baltra tenant add NAME');
    this.table = new Table({
      id: 'tenants',
      caption: 'Tenants',
      key: (t) => t.name,
      sort: 2,
      down: true,
      columns: [
        word('Tenant', (t) => t.name),
        number('Weight', (t) => t.weight, format.count),
        number('Devices now', (t) => t.busy, (v) => (v == null ? format.NONE : v.toFixed(2)), { title: () => 'Device time over time: 1 is a whole device' }),
        { label: 'Share', sort: (t) => t.busy, number: true, make: () => new Share() },
        number('Calls / s', (t) => t.rate, format.rate),
        number('Waiting', (t) => t.queued, format.count),
        number('Sessions', (t) => t.sessions, format.count),
        number('Device time', (t) => t.device_s, format.deviceSeconds),
        number('Calls', (t) => t.calls, format.count),
      ],
    });
    this.list = card(null, this.table.element);
    this.element = h('div', {}, h('h1', {}, 'Tenants'), this.list, this.none);
  }

  update() {
    const { store, filter } = this.look;
    const all = store.state.tenants;
    const busy = all.reduce((sum, t) => sum + (t.busy ?? 0), 0);
    this.none.hidden = all.length > 0;
    this.list.hidden = all.length === 0;
    const shared = all.map((t) => ({ ...t, share: busy > 0 ? (t.busy ?? 0) / busy : 0 }));
    this.table.update(shared.filter((t) => matches(filter, t.name)));
  }
}

/** A tenant's share of the device time that is in use. */
class Share {
  constructor() {
    this.bar = new Bar('Share of the device time in use');
    this.element = this.bar.element;
  }

  update(tenant) {
    this.bar.update(tenant.share);
  }
}
