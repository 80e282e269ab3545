// The overview: health, load and latency.

import { h, text, hint, route, Keyed } from '../dom.js';
import { TimeChart, HeatMap, Spark } from '../chart.js';
import { Tile, Badge, Regions, card, nothing } from '../parts.js';
import { deviceKey } from '../store.js';
import { Table, word, number, matches } from '../table.js';
import { FunctionTable } from './functions.js';
import * as format from '../format.js';

/** With more devices than this, a heat map replaces the chart's lines. */
const LINES = 6;

/** Most devices with a row; the devices' view has all. */
const HEAT_ROWS = 10;

/** Most functions with their own color; the rest is one area. */
const AREAS = 6;

export class Overview {
  constructor(look) {
    this.look = look;
    this.tiles = {
      rate: new Tile('Requests / s', 0),
      latency: new Tile('Latency p50', 1),
      tail: new Tile('Latency p99', 3),
      errors: new Tile('Errors', 4),
      busy: new Tile('Utilization', 2, { max: 1 }),
      queued: new Tile('Queue depth', 6),
      cold: new Tile('Cold starts', 5),
    };
    this.busy = new TimeChart({ label: 'Device utilization', format: format.percent, max: 1 });
    this.heat = new HeatMap({ label: 'Device utilization' });
    this.rate = new TimeChart({ label: 'Requests per second by function', format: format.rate, stacked: true });
    this.latency = new TimeChart({ label: 'Latency', format: format.micros, log: true });
    this.queued = new TimeChart({ label: 'Queue depth', format: format.count, whole: true });
    this.grid = h('div', { class: 'devices' });
    this.devices = new Keyed(this.grid, deviceKey, () => new DeviceCard(look));
    this.noDevice = nothing('No device yet', 'Start a manager to add a node\'s devices:', 'baltra manager --registry http://HOST:PORT');
    this.functions = new FunctionTable(look, 'overview');
    this.alerts = new Alerts(look);
    this.numbers = h(
      'div',
      {},
      h('div', { class: 'tiles' }, Object.values(this.tiles).map((tile) => tile.element)),
      h(
        'div',
        { class: 'charts' },
        card('Device utilization', this.busy.element, this.heat.element),
        card('Requests / s by function', this.rate.element),
        card('Latency', this.latency.element),
        card('Queue depth', this.queued.element),
      ),
    );
    this.element = h(
      'div',
      { class: 'overview' },
      h('h1', { class: 'hidden' }, 'Overview'),
      this.numbers,
      card('Devices', this.grid, this.noDevice),
      card('Functions', this.functions.element),
    );
  }

  update() {
    const { look } = this;
    const { store, filter } = look;
    const { state, recent } = store;
    const now = state.total;
    const failing = now.rate > 0 ? now.errors / now.rate : 0;
    const cold = sum(recent.total.cold.last(600, recent.tick));
    this.tiles.rate.update(format.rate(now.rate), { values: look.total('rate') });
    this.tiles.latency.update(format.micros(now.p50_us), { values: look.total('p50_us') });
    this.tiles.tail.update(format.micros(now.p99_us), { values: look.total('p99_us') });
    this.tiles.errors.update(format.percent(failing), { note: `${format.rate(now.errors)} / s`, values: look.total('errors'), alarm: failing > 0.01 });
    this.tiles.busy.update(format.percent(now.utilization), { note: counted(state.devices.length), values: look.total('utilization') });
    this.tiles.queued.update(format.count(now.queued), { values: look.total('queued') });
    this.tiles.cold.update(format.count(cold), { note: 'in 10 min', values: look.total('cold') });

    // Without devices and functions, the hints come first.
    this.numbers.hidden = !state.devices.length && !state.functions.length;
    const devices = state.devices.filter((d) => matches(filter, d.name, d.node, d.model));
    this.#busy(devices);
    this.rate.update(areas(look, filter), look);
    this.latency.update([
      { name: 'p99', values: look.total('p99_us'), which: 3 },
      { name: 'p50', values: look.total('p50_us'), which: 1 },
    ], look);
    this.queued.update([{ name: 'waiting', values: look.total('queued'), which: 6 }], look);
    this.devices.update(devices.slice(0, 60));
    this.noDevice.hidden = state.devices.length > 0;
    this.functions.update();
    if (!this.alerts.update()) this.alerts.element.remove();
    else if (!this.alerts.element.isConnected) this.numbers.before(this.alerts.element);
  }

  #busy(devices) {
    const { look } = this;
    const many = devices.length > LINES;
    this.busy.element.hidden = many;
    this.heat.element.hidden = !many;
    const one = new Set(devices.map((d) => d.node)).size < 2;
    const rows = devices.slice(0, many ? HEAT_ROWS : LINES).map((device) => ({
      name: one ? device.name : `${device.node} / ${device.name}`,
      values: look.device(device, 'utilization'),
      which: look.store.color(deviceKey(device)),
    }));
    if (many) this.heat.update(rows);
    else this.busy.update(rows, look);
  }
}

/** The alerts of the Prometheus server that fire; only with a server. */
class Alerts {
  constructor(look) {
    this.look = look;
    this.table = new Table({
      id: 'alerts',
      caption: 'Alerts that fire',
      key: (alert) => JSON.stringify(alert),
      columns: [
        word('Alert', (alert) => alert.name),
        word('Severity', (alert) => alert.severity),
        number('Since', (alert) => Date.parse(alert.since), (at) => (Number.isNaN(at) ? format.NONE : format.clock(at))),
        word('Summary', (alert) => alert.summary),
      ],
      sort: 1,
    });
    this.none = h('p', { class: 'waiting' });
    this.element = card('Alerts', this.table.element, this.none);
  }

  /** Whether there is a server. */
  update() {
    const { alerts } = this.look.store.state;
    if (!alerts) return false;
    text(this.none, alerts.reason ? `Unknown: ${alerts.reason}` : 'No alert fires.');
    this.none.hidden = alerts.firing.length > 0;
    this.table.element.hidden = alerts.firing.length === 0;
    this.table.update(alerts.firing);
    return true;
  }
}

const counted = (n) => (n === 1 ? '1 device' : `${n} devices`);

const sum = (values) => values.reduce((all, v) => all + (Number.isFinite(v) ? v : 0), 0);

/** The busiest functions separately, and the rest together. */
function areas(look, filter) {
  const { store } = look;
  const all = store.state.functions
    .filter((f) => matches(filter, f.name, f.tenant, f.description))
    .map((f) => ({ name: f.name, values: look.function(f, 'rate') }))
    .map((one) => ({ ...one, sum: sum(one.values) }))
    .sort((a, b) => b.sum - a.sum);
  const own = all.slice(0, AREAS);
  // By name and not by rate, so that areas do not swap.
  own.sort((a, b) => (a.name < b.name ? -1 : 1));
  const shown = own.map((one) => ({ ...one, which: store.color(one.name) }));
  const rest = all.slice(AREAS);
  if (rest.length) {
    const values = look.total('rate').map((_, i) => rest.reduce((n, one) => n + (one.values[i] || 0), 0));
    shown.push({ name: rest.length === 1 ? '1 other' : `${rest.length} others`, values, which: 'muted' });
  }
  return shown;
}

class DeviceCard {
  constructor(look) {
    this.look = look;
    this.name = h('a');
    this.node = h('small');
    this.badge = new Badge();
    this.busy = h('b');
    this.spark = new Spark(2, { max: 1 });
    this.regions = new Regions();
    this.queued = h('small');
    this.element = h(
      'article',
      { class: 'device' },
      h('header', {}, h('div', {}, this.name, this.node), this.badge.element),
      h('div', { class: 'busy' }, this.busy, this.queued),
      this.spark.element,
      this.regions.element,
    );
  }

  update(device) {
    text(this.name, device.name);
    this.name.setAttribute('href', route('devices', device.node, device.name));
    hint(this.name, device.model);
    text(this.node, device.node);
    this.badge.update(device.state, device.reason);
    text(this.busy, format.percent(device.utilization));
    text(this.queued, `${format.count(device.queued)} waiting`);
    this.spark.update(this.look.device(device, 'utilization'));
    this.regions.update(device.regions);
  }
}
