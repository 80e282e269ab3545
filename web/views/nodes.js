// The hosts with a Device Manager, and their registry.

import { h, text } from '../dom.js';
import { Badge, card, nothing } from '../parts.js';
import { Table, word, number, matches } from '../table.js';
import { stateCell } from './devices.js';
import * as format from '../format.js';

export class Nodes {
  constructor(look) {
    this.look = look;
    this.none = nothing('No node yet', 'Start a manager on a host:', 'baltra manager --registry http://HOST:PORT');
    this.badge = new Badge();
    this.where = h('span');
    this.why = h('small');
    this.registry = card('Registry', h('p', { class: 'registry' }, this.badge.element, this.where, this.why));
    this.table = new Table({
      id: 'nodes',
      caption: 'Nodes',
      key: (n) => n.name,
      columns: [
        word('Node', (n) => n.name),
        { label: 'State', sort: (n) => n.state, make: stateCell },
        word('Reason', (n) => n.reason || null),
        number('Devices', (n) => this.counts.get(n.name) ?? 0, format.count),
        number('Sessions', (n) => n.sessions, format.count),
        number('Executors', (n) => n.executors, format.count),
        number('Last heartbeat', (n) => n.heard_ms, (ms) => `${format.micros(ms * 1000)} ago`), // text-ok
        number('Up', (n) => n.uptime_s, format.seconds),
        word('Address', (n) => n.address),
        word('Version', (n) => n.version || null),
      ],
    });
    this.list = card(null, this.table.element);
    this.element = h('div', {}, h('h1', {}, 'Nodes'), this.registry, this.list, this.none);
  }

  update() {
    const { store, filter } = this.look;
    const { nodes, devices, registry } = store.state;
    this.counts = new Map();
    for (const d of devices) this.counts.set(d.node, (this.counts.get(d.node) ?? 0) + 1);
    this.none.hidden = nodes.length > 0;
    this.list.hidden = nodes.length === 0;
    this.badge.update(registry ? (registry.reachable ? 'reachable' : 'unreachable') : 'none');
    text(this.where, registry ? registry.address : 'The gateway serves without a registry.');
    text(this.why, registry ? `${registry.reason} for ${format.seconds(registry.since_s)}` : '');
    this.table.update(nodes.filter((n) => matches(filter, n.name, n.address, n.state)));
  }
}
