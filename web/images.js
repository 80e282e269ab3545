// The image changes of a device's regions: a lane for each region over the selected time, and a list.

import { h, text } from './dom.js';
import { paint } from './chart.js';
import * as format from './format.js';

const LOOK_MS = 2_000;

/** Most changes in the list. */
const LISTED = 12;

const nameOf = (image) => (image ? image.name || image.digest.slice(0, 12) : 'blank');

/** When each image of a region began and ended, within the time from `begin` to `end`. */
function stays({ regions, changes }, region, begin, end) {
  const own = changes.filter((change) => change.region === region);
  const list = [];
  let from = begin;
  for (const change of own) {
    if (change.at_ms > from) list.push({ image: change.from, from, to: Math.min(change.at_ms, end) });
    from = Math.max(change.at_ms, begin);
  }
  list.push({ image: regions[region] ?? null, from, to: end });
  return list.filter((stay) => stay.image && stay.to > stay.from);
}

export class ImageTimeline {
  constructor(look, node, name) {
    Object.assign(this, { look, node, name, record: null, shown: '' });
    this.range = h('p', { class: 'range' });
    this.lanes = h('div', { class: 'lanes', 'aria-hidden': 'true' });
    this.legend = h('ul', { class: 'legend', 'aria-hidden': 'true' });
    this.list = h('ol', { class: 'changes' });
    this.none = h('p', { class: 'waiting' }, 'No image has changed.');
    this.element = h('div', {}, this.lanes, this.range, this.legend, this.list, this.none);
    this.timer = setInterval(() => this.#fetch(), LOOK_MS);
    this.#fetch();
  }

  close() {
    clearInterval(this.timer);
  }

  async #fetch() {
    if (document.hidden || this.fetching) return;
    this.fetching = true;
    const place = new URLSearchParams({ node: this.node, device: this.name });
    try {
      const answer = await fetch(`api/images?${place}`, { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
      if (answer.ok) this.record = await answer.json();
      this.update();
    } catch {
      // The stream reports a lost connection; polling resumes with it.
    } finally {
      this.fetching = false;
    }
  }

  update() {
    const { look, record } = this;
    if (!record) return;
    const end = record.at_ms;
    const begin = Math.max(end - look.points * look.step * 1000, record.since_ms || end);
    this.none.hidden = record.changes.length > 0;
    const used = record.regions.some(Boolean) || record.changes.length > 0;
    this.lanes.hidden = !used;
    this.range.hidden = !used;
    text(this.range, `${format.clock(begin)} to ${format.clock(end)}`);
    this.#draw(record, begin, end);
    const wanted = JSON.stringify(record.changes);
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.list.replaceChildren(...[...record.changes].reverse().slice(0, LISTED).map((change) =>
      h('li', {}, h('time', { datetime: new Date(change.at_ms).toISOString() }, format.clock(change.at_ms)),
        h('span', {}, `region ${change.region}: ${nameOf(change.from)} → ${nameOf(change.to)}`))));
  }

  #draw(record, begin, end) {
    const images = new Map();
    const count = Math.max(record.regions.length, ...record.changes.map((change) => change.region + 1));
    const part = (ms) => `${(100 * ms) / Math.max(end - begin, 1)}%`;
    const lanes = Array.from({ length: count }, (_, region) => {
      const bars = stays(record, region, begin, end).map((stay) => {
        const color = this.look.store.color(stay.image.digest);
        images.set(nameOf(stay.image), color);
        const bar = h('i', { title: nameOf(stay.image) });
        bar.style.left = part(stay.from - begin);
        bar.style.width = part(stay.to - stay.from);
        bar.style.background = paint(color);
        return bar;
      });
      return h('div', {}, h('small', {}, String(region)), h('div', { class: 'lane' }, bars));
    });
    this.lanes.replaceChildren(...lanes);
    this.legend.replaceChildren(...[...images].map(([name, color]) => {
      const dot = h('i');
      dot.style.background = paint(color);
      return h('li', {}, dot, h('span', {}, name));
    }));
  }
}
