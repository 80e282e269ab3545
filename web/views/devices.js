// The devices: utilization and loaded accelerators.

import { h, text, route } from '../dom.js';
import { HeatMap } from '../chart.js';
import { Badge, Regions, card, nothing } from '../parts.js';
import { Table, word, number, matches } from '../table.js';
import { RunningTable } from '../running.js';
import { SessionTable } from '../sessions.js';
import { deviceKey } from '../store.js';
import * as format from '../format.js';

/** Most devices with a row in the heat map. */
const HEAT_ROWS = 32;

/** A device's loaded accelerators, by name. */
const loaded = (device) => device.regions.flatMap((r) => r.loaded.map((a) => a.name));

export class Devices {
  constructor(look) {
    this.look = look;
    this.heat = new HeatMap({ label: 'Utilization of each device over time' });
    this.none = nothing('No device yet', 'Start a manager to add a node\'s devices:', 'baltra manager --registry http://HOST:PORT');
    this.table = new Table({
      id: 'devices',
      caption: 'Devices',
      key: deviceKey,
      href: (d) => route('devices', d.node, d.name),
      columns: [
        word('Device', (d) => d.name, { title: (d) => d.model }),
        word('Node', (d) => d.node),
        { label: 'State', sort: (d) => d.state, make: stateCell },
        number('Utilization', (d) => d.utilization, format.percent),
        number('Tasks / s', (d) => d.tasks_rate, format.rate),
        number('Waiting', (d) => d.queued, format.count),
        { label: 'Loaded', sort: (d) => loaded(d).join(), make: () => regionsCell() },
        number('Memory', (d) => d.memory_used_bytes, format.bytes),
        number('Sessions', (d) => d.sessions, format.count),
        number('Deaths', (d) => d.deaths, format.count),
        number('Reconfigured', (d) => d.reconfigurations, format.count),
        word('Model', (d) => d.model),
      ],
    });
    this.most = h('small');
    this.map = card('Utilization', this.heat.element, this.most);
    this.list = card(null, this.table.element);
    this.running = new RunningTable(look, 'running');
    this.tasks = card('Running now', this.running.element);
    this.open = new SessionTable(look, 'sessions');
    this.sessions = card('Sessions', this.open.element);
    this.element = h('div', {}, h('h1', {}, 'Devices'), this.map, this.list, this.none);
  }

  update() {
    const { look } = this;
    const { store, filter } = look;
    const all = store.state.devices;
    const rows = all.filter((d) => matches(filter, d.name, d.node, d.model, d.vendor, d.state, loaded(d)));
    this.none.hidden = all.length > 0;
    this.map.hidden = rows.length === 0;
    this.list.hidden = all.length === 0;
    this.heat.update(busiest(rows.map((d) => ({
      name: `${d.node} / ${d.name}`,
      values: look.device(d, 'utilization'),
    }))));
    text(this.most, rows.length > HEAT_ROWS ? `The ${HEAT_ROWS} busiest of ${rows.length}.` : '');
    this.table.update(rows);
    if (!this.running.update(rows)) this.tasks.remove();
    else if (!this.tasks.isConnected) this.list.before(this.tasks);
    if (!this.open.update(rows)) this.sessions.remove();
    else if (!this.sessions.isConnected) this.list.after(this.sessions);
  }
}

/** The busiest rows in the displayed time, in their original order. */
function busiest(rows) {
  if (rows.length <= HEAT_ROWS) return rows;
  const sum = (values) => values.reduce((all, v) => all + (Number.isFinite(v) ? v : 0), 0);
  const sums = new Map(rows.map((row) => [row, sum(row.values)]));
  const kept = new Set([...rows].sort((a, b) => sums.get(b) - sums.get(a)).slice(0, HEAT_ROWS));
  return rows.filter((row) => kept.has(row));
}

export function stateCell() {
  const badge = new Badge();
  return { element: badge.element, update: (row) => badge.update(row.state, row.reason) };
}

function regionsCell() {
  const regions = new Regions();
  return { element: regions.element, update: (row) => regions.update(row.regions) };
}
