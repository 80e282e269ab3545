// Elements that several views use.

import { h, s, text, hint, mark } from './dom.js';
import { Spark } from './chart.js';
import { NONE } from './format.js';

const GOOD = new Set(['ready', 'loaded', 'serving', 'reachable']);
const NOTE = new Set(['starting', 'cordoned', 'draining']);
const BAD = new Set(['failed', 'lost', 'unreachable']);

/** A state as a word, with a dot whose shape also shows it. */
export class Badge {
  constructor() {
    this.word = h('span');
    this.element = h('span', { class: 'badge' }, h('i', { 'aria-hidden': 'true' }), this.word);
  }

  update(state, reason) {
    text(this.word, state);
    mark(this.element, 'good', GOOD.has(state));
    mark(this.element, 'note', NOTE.has(state));
    mark(this.element, 'bad', BAD.has(state));
    hint(this.element, reason);
  }
}

/** A number with its name, and a chart of its last minutes. */
export class Tile {
  constructor(label, which, options = {}) {
    this.value = h('b', {}, NONE);
    this.note = h('small');
    this.spark = options.plain ? null : new Spark(which, options);
    this.element = h(
      'div',
      { class: 'tile', 'data-tile': label },
      h('span', {}, label),
      h('div', {}, this.value, this.note),
      this.spark?.element,
    );
  }

  update(value, { note = '', values, alarm = false } = {}) {
    text(this.value, value);
    text(this.note, note);
    mark(this.element, 'alarm', alarm);
    if (values) this.spark?.update(values);
  }
}

/** A part of the page with a heading, optionally with an element beside it. */
export function card(title, ...children) {
  const [name, ...beside] = [title].flat();
  const heading = name ? h('div', { class: 'heading' }, h('h2', {}, name), beside) : null;
  return h('section', { class: 'card' }, heading, ...children);
}

/** A list of names and values. */
export class Facts {
  constructor() {
    this.values = new Map();
    this.element = h('dl', { class: 'facts' });
  }

  /** Shows each of the facts by its name; names are the same each time. */
  update(facts) {
    for (const [name, value] of Object.entries(facts)) {
      if (!this.values.has(name)) {
        this.values.set(name, h('dd', {}));
        this.element.append(h('div', {}, h('dt', {}, name), this.values.get(name)));
      }
      text(this.values.get(name), value || NONE);
    }
  }
}

/** A hint shown instead of an empty list. */
export function nothing(title, why, ...commands) {
  return h(
    'div',
    { class: 'empty' },
    drawing(),
    h('h2', {}, title),
    h('p', {}, why),
    commands.map((command) => h('pre', {}, h('code', {}, command))),
  );
}

/** The picture for an empty list: an island. */
function drawing() {
  return s(
    'svg',
    { viewBox: '0 0 120 48', width: '120', height: '48', 'aria-hidden': 'true' },
    s('path', { d: 'M18 34c14-2 20-24 40-24s24 22 42 24z', class: 'land' }),
    s('path', { d: 'M8 42q8-6 16 0t16 0 16 0 16 0 16 0 16 0', class: 'sea' }),
  );
}

/** A fill level as a thin bar. */
export class Bar {
  constructor(label) {
    this.fill = h('i');
    this.element = h('div', { class: 'bar', role: 'meter', 'aria-label': label, 'aria-valuemin': '0', 'aria-valuemax': '100' }, this.fill);
  }

  update(part) {
    const percent = Number.isFinite(part) ? Math.round(100 * Math.max(0, Math.min(1, part))) : 0;
    this.fill.style.width = `${percent}%`;
    this.element.setAttribute('aria-valuenow', percent);
  }
}

/** Buttons of which one is selected. */
export function choice(element, options, chosen, on) {
  const buttons = options.map(([label, value]) =>
    h('button', { type: 'button', 'aria-pressed': String(value === chosen), click: () => pick(value) }, label));
  function pick(value) {
    options.forEach(([, v], i) => buttons[i].setAttribute('aria-pressed', String(v === value)));
    on(value);
  }
  element.replaceChildren(...buttons);
}

/** A device's regions and what is loaded in each. */
export class Regions {
  constructor() {
    this.element = h('ul', { class: 'regions', 'aria-label': 'Regions' });
    this.shown = '';
  }

  update(regions) {
    const wanted = JSON.stringify(regions);
    if (wanted === this.shown) return;
    this.shown = wanted;
    mark(this.element, 'several', regions.length > 1);
    this.element.replaceChildren(...regions.map((region, i) => {
      const names = region.loaded.map((a) => h('span', { class: 'chip', title: a.digest }, a.name || a.digest.slice(0, 12)));
      const what = region.loading
        ? [...names, h('span', { class: 'chip loading' }, 'loading')]
        : names.length ? names : [h('span', { class: 'chip blank' }, 'blank')];
      return h('li', {}, regions.length > 1 ? h('small', {}, String(i)) : null, ...what);
    }));
  }
}
