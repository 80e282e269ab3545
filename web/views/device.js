// One device.

import { h, text } from '../dom.js';
import { TimeChart } from '../chart.js';
import { Badge, Bar, Facts, Regions, card, nothing } from '../parts.js';
import { DeviceActions, RunningTable } from '../running.js';
import { ImageTimeline } from '../images.js';
import { SessionTable } from '../sessions.js';
import * as format from '../format.js';

/** The images that wait for their turn, the next one first, and for how long. */
function waiting(images) {
  const shown = images.map((i) => {
    const name = i.name || i.digest.slice(0, 12);
    return `${name} (${format.micros(1000 * i.waiting_ms)})`;
  });
  return `Waiting for a turn: ${shown.join(', ')}`;
}

export class DeviceView {
  constructor(look, node, name) {
    Object.assign(this, { look, node, name });
    this.badge = new Badge();
    this.reason = h('p', { class: 'lead' });
    this.busy = new TimeChart({ label: 'Utilization', format: format.percent, max: 1 });
    this.tasks = new TimeChart({ label: 'Tasks per second', format: format.rate });
    this.regions = new Regions();
    this.turns = h('p', { class: 'turns' });
    this.memory = new Bar('Memory used');
    this.facts = new Facts();
    this.actions = new DeviceActions(look, node, name);
    this.running = new RunningTable(look, 'running-here');
    this.idle = h('p', {}, 'No task runs.');
    this.sessions = new SessionTable(look, 'sessions-here');
    this.alone = h('p', {}, 'No session is open.');
    this.images = new ImageTimeline(look, node, name);
    this.body = h(
      'div',
      {},
      h('header', { class: 'head' },
        h('a', { href: '#/devices', class: 'back' }, '← Devices'),
        h('h1', {}, name, h('small', {}, node)), this.badge.element, this.actions.element, this.reason),
      h('div', { class: 'charts' },
        card('Utilization', this.busy.element),
        card('Tasks / s', this.tasks.element),
        card('Regions', this.regions.element, this.turns,
          h('h2', {}, 'Memory'), this.memory.element)),
      card('Running now', this.running.element, this.idle),
      card('Sessions', this.sessions.element, this.alone),
      card('Images over time', this.images.element),
      card('Facts', this.facts.element),
    );
    this.gone = nothing(`No device ${name} on ${node}`, 'Its node left the pool, or its name is different.', 'baltra devices');
    this.element = h('div', {}, this.body, this.gone);
  }

  close() {
    this.images.close();
  }

  update() {
    const { look } = this;
    const { store } = look;
    const d = store.state.devices.find((one) => one.node === this.node && one.name === this.name);
    this.body.hidden = !d;
    this.gone.hidden = Boolean(d);
    if (!d) return;
    this.badge.update(d.state, d.reason);
    text(this.reason, d.reason);
    this.busy.update([{ name: 'utilization', values: look.device(d, 'utilization'), which: 2 }], look);
    this.tasks.update([{ name: 'tasks', values: look.device(d, 'tasks'), which: 0 }], look);
    this.regions.update(d.regions);
    text(this.turns, waiting(d.waiting_images));
    this.turns.hidden = d.waiting_images.length === 0;
    this.actions.update(d);
    this.idle.hidden = this.running.update([d]) > 0;
    this.alone.hidden = this.sessions.update([d]) > 0;
    this.images.update();
    this.memory.update(d.memory_used_bytes / d.memory_bytes);
    this.facts.update({
      Model: d.model,
      Vendor: d.vendor,
      Platform: d.platform,
      Regions: d.region_count,
      Slots: format.count(d.slots),
      Utilization: format.percent(d.utilization),
      Waiting: format.count(d.queued),
      Sessions: format.count(d.sessions),
      Executors: format.count(d.executors),
      Tasks: format.count(d.tasks),
      'Tasks / s': format.rate(d.tasks_rate),
      'Executor deaths': format.count(d.deaths),
      Reconfigurations: format.count(d.reconfigurations),
      Memory: `${format.bytes(d.memory_used_bytes)} of ${format.bytes(d.memory_bytes)}`,
    });
  }
}
