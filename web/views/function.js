// One function: rate, latency, cold starts, replicas; and a form to call it.

import { h, text, Keyed } from '../dom.js';
import { TimeChart, HistogramChart, paint } from '../chart.js';
import { Tile, Badge, card, choice, nothing } from '../parts.js';
import { Try } from '../try.js';
import { confirmAction } from '../action.js';
import { failing } from './functions.js';
import * as format from '../format.js';

const DETAILS_MS = 1_000;

export class FunctionView {
  constructor(look, name) {
    Object.assign(this, { look, name, details: null, window: 'recent' });
    this.title = h('h1', {}, name);
    this.description = h('p', { class: 'lead' });
    this.kinds = h('p', { class: 'chips' });
    this.tiles = {
      rate: new Tile('Requests / s', 0),
      p50: new Tile('Latency p50', 1),
      p99: new Tile('Latency p99', 3),
      errors: new Tile('Errors', 4),
      queued: new Tile('Waiting', 6),
      running: new Tile('Running', 0, { plain: true }),
      replicas: new Tile('Replicas', 0, { plain: true }),
      cold: new Tile('Cold starts', 0, { plain: true }),
    };
    this.rate = new TimeChart({ label: 'Requests per second', format: format.rate });
    this.latency = new TimeChart({ label: 'Latency', format: format.micros, log: true });
    this.histogram = new HistogramChart({ label: 'Latency histogram' });
    const windows = h('div', { class: 'switch', role: 'group', 'aria-label': 'Calls shown' });
    choice(windows, [['last minute', 'recent'], ['since start', 'all']], this.window, (window) => {
      this.window = window;
      this.#histogram();
    });
    this.cold = new ColdStarts();
    this.list = h('ul', { class: 'placements' });
    this.placements = new Keyed(this.list, (p) => JSON.stringify([p.node, p.device]), () => new PlacementRow());
    this.nowhere = h('p', { class: 'waiting' }, 'Not loaded: its next call is a cold start.');
    this.form = new Try(name);
    this.scale = h('button', { type: 'button', class: 'plain', click: () => this.#scale() }, 'Scale …');
    this.body = h(
      'div',
      {},
      h('header', { class: 'head' }, h('a', { href: '#/functions', class: 'back' }, '← Functions'), this.title, h('div', { class: 'row' }, this.scale), this.description, this.kinds),
      h('div', { class: 'tiles' }, Object.values(this.tiles).map((tile) => tile.element)),
      h(
        'div',
        { class: 'charts' },
        card('Requests / s', this.rate.element),
        card('Latency', this.latency.element),
        card(['Latency histogram', windows], this.histogram.element),
        card('Cold starts', this.cold.element),
      ),
      card('Replicas', this.list, this.nowhere),
      this.form.element,
    );
    this.gone = nothing(`No function ${name}`, 'It was removed, or its name is different.', 'baltra function list');
    this.element = h('div', {}, this.body, this.gone);
    this.timer = setInterval(() => this.#fetch(), DETAILS_MS);
    this.#fetch();
  }

  close() {
    clearInterval(this.timer);
    this.form.close();
  }

  /** Sets the number of replicas, which is management: the gateway's own password authorizes it. */
  #scale() {
    const { name } = this;
    const now = this.look.store.state.functions.find((f) => f.name === name)?.replicas ?? 0;
    const count = h('input', { type: 'number', name: 'replicas', min: '0', max: '10000', required: true, value: String(now) });
    confirmAction({
      store: this.look.store,
      title: `Scale ${name}`,
      effect: 'Replicas are started on other devices, or stopped after their calls; 0: the next call is a cold start.',
      button: 'Scale',
      fields: [h('label', { class: 'field' }, h('span', {}, 'Replicas'), count)],
      body: () => ({ serviceName: name, replicas: Number(count.value) }),
      order: (body) => fetch(`../system/scale-function/${encodeURIComponent(name)}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
        cache: 'no-store',
      }),
      observed: (state) => {
        const f = state.functions.find((one) => one.name === name);
        if (f?.replicas !== Number(count.value)) return null;
        return `The desired number is ${f.replicas}; ${f.placements.length} ${f.placements.length === 1 ? 'replica is' : 'replicas are'} placed.`;
      },
    });
  }

  /** Polls the details that the stream lacks, while the function exists. */
  async #fetch() {
    const there = this.look.store.state?.functions.some((f) => f.name === this.name);
    if (!there || document.hidden || this.fetching) return;
    this.fetching = true;
    try {
      const answer = await fetch(`api/function/${encodeURIComponent(this.name)}`, { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
      if (answer.ok) this.#take(await answer.json());
    } catch {
      // The stream reports a lost connection; polling resumes with it.
    } finally {
      this.fetching = false;
    }
  }

  #take(details) {
    this.details = details;
    this.#histogram();
    this.cold.update(details.cold);
    this.form.update(details.contract);
  }

  #histogram() {
    if (!this.details) return;
    const counts = this.details[`latency_${this.window}`];
    const bounds = this.details.bounds_us;
    const bars = counts.map(([high, count]) => {
      const i = high === null ? bounds.length : bounds.indexOf(high);
      const low = i > 0 ? bounds[i - 1] : (high ?? 1) / 2;
      return { low, high: high ?? low * 2, count };
    });
    const marks = [['p50', 0.5], ['p99', 0.99]].map(([name, q]) => ({ name, at: quantile(bars, q) }));
    this.histogram.update(bars, bars.length ? marks : []);
  }

  update() {
    const { look } = this;
    const { store } = look;
    const f = store.state.functions.find((one) => one.name === this.name);
    this.body.hidden = !f;
    this.gone.hidden = Boolean(f);
    if (!f) return;
    if (!this.details) this.#fetch();
    const last = (name) => look.function(f, name);
    text(this.description, f.reason || f.description);
    this.description.classList.toggle('bad', Boolean(f.reason));
    const kinds = [...f.implementations, f.tenant && `tenant ${f.tenant}`].filter(Boolean);
    if (this.kinds.children.length !== kinds.length) this.kinds.replaceChildren(...kinds.map((k) => h('span', { class: 'chip' }, k)));
    kinds.forEach((kind, i) => text(this.kinds.children[i], kind));
    const part = failing(f);
    this.tiles.rate.update(format.rate(f.rate), { values: last('rate') });
    this.tiles.p50.update(format.micros(f.p50_us), { values: last('p50_us') });
    this.tiles.p99.update(format.micros(f.p99_us), { values: last('p99_us') });
    this.tiles.errors.update(format.percent(part), { note: `${format.count(f.errors)} so far`, values: last('errors'), alarm: part > 0.01 });
    this.tiles.queued.update(format.count(f.queued), { values: last('queued') });
    this.tiles.running.update(format.count(f.running), { note: `${format.count(f.calls)} so far` });
    this.tiles.replicas.update(format.count(f.replicas));
    this.tiles.cold.update(format.count(f.cold_starts), { note: f.cold_last_us ? `last ${format.micros(f.cold_last_us)}` : '' });
    this.rate.update([
      { name: 'calls', values: last('rate'), which: 0 },
      { name: 'failed', values: last('errors'), which: 4 },
    ], look);
    this.latency.update([
      { name: 'p99', values: last('p99_us'), which: 3 },
      { name: 'p50', values: last('p50_us'), which: 1 },
    ], look);
    this.placements.update(f.placements);
    this.nowhere.hidden = f.placements.length > 0;
  }
}

/** The quantile `q` of the durations, from a histogram's bars. */
export function quantile(bars, q) {
  const wanted = q * bars.reduce((n, bar) => n + bar.count, 0);
  let below = 0;
  for (const bar of bars) {
    if (below + bar.count >= wanted) return bar.low + (bar.high - bar.low) * ((wanted - below) / bar.count);
    below += bar.count;
  }
  return NaN;
}

class PlacementRow {
  constructor() {
    this.place = h('span');
    this.badge = new Badge();
    this.element = h('li', {}, this.place, this.badge.element);
  }

  update(placement) {
    text(this.place, placement.device ? `${placement.node} / ${placement.device}` : `${placement.node} (native)`);
    this.badge.update(placement.loaded ? 'loaded' : 'on demand');
  }
}

/** The last cold starts, each as a bar of its steps. */
class ColdStarts {
  constructor() {
    this.legend = h('ul', { class: 'legend' });
    this.rows = h('ol', { class: 'cold' });
    this.none = h('p', { class: 'waiting' }, 'None yet.');
    this.element = h('div', {}, this.legend, this.rows, this.none);
    this.shown = '';
  }

  update(cold) {
    const wanted = JSON.stringify(cold);
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.none.hidden = cold.length > 0;
    const names = [...new Set(cold.flatMap((one) => one.parts.map(([name]) => name)))];
    const dot = (name) => {
      const i = h('i');
      i.style.background = paint(names.indexOf(name));
      return i;
    };
    this.legend.replaceChildren(...names.map((name) => h('li', {}, dot(name), h('span', {}, name))));
    const longest = Math.max(...cold.map((one) => one.total_us), 1);
    this.rows.replaceChildren(...[...cold].reverse().slice(0, 6).map((one) => {
      const bar = h('div', { class: 'steps' }, one.parts.map(([name, us]) => {
        const step = dot(name);
        step.style.width = `${(100 * us) / longest}%`;
        step.title = `${name}: ${format.micros(us)}`;
        return step;
      }));
      const parts = one.parts.map(([name, us]) => `${name} ${format.micros(us)}`).join(' · ');
      return h('li', {},
        h('div', {}, h('b', {}, format.micros(one.total_us)), h('small', {}, [one.at_ms ? format.clock(one.at_ms) : '', one.node, one.device].filter(Boolean).join('  '))),
        bar, h('small', {}, parts));
    }));
  }
}
