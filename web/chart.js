// Charts on a canvas: lines over time, heat maps, histograms. Colors come from the style sheet, so
// they follow the system's scheme. Each chart is an image with a label of its newest values, can be
// focused, and is read point by point with the arrow keys.

import { h, text } from './dom.js';
import * as format from './format.js';

const PALETTE = 8;
const scheme = matchMedia('(prefers-color-scheme: dark)');

const cache = new Map();
scheme.addEventListener('change', () => cache.clear());

function css(name) {
  if (!cache.has(name)) cache.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return cache.get(name);
}

const property = (which) => (typeof which === 'number' ? `--series-${which % PALETTE}` : `--${which}`);

/** A color of the style sheet: a number is an index of the palette, a name selects by name. */
const color = (which) => css(property(which));

/** The same for an element's style, which follows the scheme by itself. */
export const paint = (which) => `var(${property(which)})`;

/** The next larger round number from `value` on whose half is also round. */
function ceiling(value, whole) {
  if (whole && value < 2) return 2;
  if (!(value > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  const steps = whole ? [1, 2, 4, 6, 8, 10] : [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
  return steps.find((step) => step * size >= value * 0.9999) * size;
}

/** A canvas that fills its container, redrawn when its size or the color scheme changes. */
class Surface {
  constructor(draw, className) {
    this.canvas = h('canvas', { 'aria-hidden': 'true' });
    this.element = h('div', { class: `surface ${className}` }, this.canvas);
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(this.element);
    scheme.addEventListener('change', () => this.redraw());
  }

  redraw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    const [w, ht] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.canvas.width !== w || this.canvas.height !== ht) {
      this.canvas.width = w;
      this.canvas.height = ht;
    }
    const pen = this.canvas.getContext('2d');
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `11px ${css('--font')}`;
    this.draw(pen, width, height);
  }
}

/** Calls back with the positions of each run of known points. */
function runs(values, x, y, each) {
  let run = [];
  for (let i = 0; i <= values.length; i += 1) {
    if (i < values.length && Number.isFinite(values[i])) run.push([x(i), y(values[i])]);
    else if (run.length) {
      each(run);
      run = [];
    }
  }
}

function trace(pen, run) {
  pen.beginPath();
  run.forEach(([px, py], i) => (i ? pen.lineTo(px, py) : pen.moveTo(px, py)));
  // A point between two gaps has no line.
  if (run.length === 1) pen.lineTo(run[0][0] + 1, run[0][1]);
}

/** A line without axes, for a tile or a row. */
export class Spark {
  constructor(which, { max } = {}) {
    this.surface = new Surface((...place) => this.#draw(...place), 'spark');
    this.element = this.surface.element;
    Object.assign(this, { which, max, values: [] });
  }

  update(values) {
    this.values = values;
    this.surface.redraw();
  }

  #draw(pen, width, height) {
    const { values } = this;
    const top = this.max ?? Math.max(...Array.from(values).filter(Number.isFinite), 0);
    const x = (i) => (i / Math.max(values.length - 1, 1)) * width;
    const y = (v) => height - 1.5 - (top > 0 ? v / top : 0) * (height - 3);
    const stroke = color(this.which);
    runs(values, x, y, (run) => {
      trace(pen, run);
      pen.strokeStyle = stroke;
      pen.lineWidth = 1.5;
      pen.lineJoin = 'round';
      pen.stroke();
      pen.lineTo(run.at(-1)[0], height);
      pen.lineTo(run[0][0], height);
      pen.globalAlpha = 0.13;
      pen.fillStyle = stroke;
      pen.fill();
      pen.globalAlpha = 1;
    });
  }
}

/**
 * Lines over time, or areas on top of each other (`stacked`). `format` writes a value, `max` holds
 * the scale; without it, the scale follows the values, in `whole` numbers if all values are
 * integers.
 */
export class TimeChart {
  constructor({ label, format: write, max, stacked = false, log = false, whole = false }) {
    Object.assign(this, { label, write, max, stacked, log, whole, series: [], at: null, step: 1 });
    this.surface = new Surface((...place) => this.#draw(...place), 'plot');
    this.tip = h('div', { class: 'tip', hidden: true });
    this.legend = h('ul', { class: 'legend', 'aria-hidden': 'true' });
    this.plot = h(
      'div',
      {
        class: 'plotbox', role: 'img', 'aria-label': label, tabindex: '0',
        pointermove: (event) => this.#point(event),
        pointerdown: (event) => this.#point(event),
        pointerleave: () => this.#leave(),
        blur: () => this.#leave(),
        keydown: (event) => this.#key(event),
      },
      this.surface.element,
      this.tip,
    );
    this.element = h('div', { class: 'chart' }, this.plot, this.legend);
  }

  /** Series are `{name, values, which}`, all of the same length: `points`, the newest last, of `step`
   * seconds each. */
  update(series, { points, step }) {
    Object.assign(this, { series, step });
    this.length = series[0]?.values.length ?? points;
    this.#legend();
    const now = series.slice(0, 8).map((one) => `${one.name} ${this.write(one.values.at(-1))}`);
    this.plot.setAttribute('aria-label', `${this.label}: ${now.join(', ') || 'no values yet'}`);
    this.surface.redraw();
    if (this.at !== null) this.#tip();
  }

  #legend() {
    const wanted = this.series.length > 1 ? this.series : [];
    while (this.legend.children.length > wanted.length) this.legend.lastChild.remove();
    while (this.legend.children.length < wanted.length) {
      this.legend.append(h('li', {}, h('i'), h('span')));
    }
    wanted.forEach((one, i) => {
      const [dot, name] = this.legend.children[i].children;
      dot.style.background = paint(one.which);
      text(name, one.name);
    });
  }

  /** The drawn values; stacked areas are sums. */
  #levels() {
    if (!this.stacked) return this.series.map((one) => one.values);
    const sum = new Float64Array(this.length);
    // If all series lack a value, all have a gap.
    const gap = sum.map((_, i) => (this.series.some((one) => Number.isFinite(one.values[i])) ? 0 : NaN));
    return this.series.map((one) => one.values.map((v, i) => (sum[i] += Number.isFinite(v) ? v : 0) + gap[i]));
  }

  #scale(levels) {
    let top = 0;
    let least = Infinity;
    for (const values of levels) {
      for (const v of values) {
        if (v > top) top = v;
        if (v > 0 && v < least) least = v;
      }
    }
    return { top: this.max ?? ceiling(top * 1.05, this.whole), least };
  }

  #draw(pen, width, height) {
    const [left, right, above, below] = [0, 0, 16, 18];
    const inner = { width: width - left - right, height: height - above - below };
    const levels = this.#levels();
    const { top, least } = this.#scale(levels);
    const x = (i) => left + (i / Math.max(this.length - 1, 1)) * inner.width;
    let y = (v) => above + (1 - Math.min(v, top) / top) * inner.height;
    let ticks = [0, top / 2, top];
    if (this.log && Number.isFinite(least)) {
      const low = Math.floor(Math.log10(least));
      const high = Math.max(Math.ceil(Math.log10(top)), low + 1);
      const part = (v) => (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low);
      y = (v) => above + (1 - Math.min(part(v), 1)) * inner.height;
      const step = high - low > 4 ? 2 : 1;
      ticks = [];
      for (let p = low; p <= high; p += step) ticks.push(10 ** p);
    }
    this.frame = { x, left, inner };

    pen.lineWidth = 1;
    pen.textBaseline = 'bottom';
    for (const tick of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      pen.strokeStyle = color('grid');
      pen.beginPath();
      pen.moveTo(left, at);
      pen.lineTo(width - right, at);
      pen.stroke();
      pen.fillStyle = color('muted');
      pen.textAlign = 'left';
      if (tick !== 0) pen.fillText(this.write(tick), left + 1, at - 2);
    }
    this.#times(pen, width, height);

    const order = levels.map((_, i) => i);
    if (this.stacked) order.reverse();
    for (const i of order) {
      const stroke = color(this.series[i].which);
      runs(levels[i], x, y, (run) => {
        trace(pen, run);
        pen.strokeStyle = stroke;
        pen.lineWidth = this.stacked ? 1.25 : 1.75;
        pen.lineJoin = 'round';
        pen.setLineDash(this.series[i].dashed ? [5, 4] : []);
        if (this.stacked || this.series.length === 1) {
          const area = new Path2D();
          run.forEach(([px, py], k) => (k ? area.lineTo(px, py) : area.moveTo(px, py)));
          area.lineTo(run.at(-1)[0], above + inner.height);
          area.lineTo(run[0][0], above + inner.height);
          // The area is painted opaque first, so that areas below it are not visible.
          if (this.stacked) {
            pen.fillStyle = color('card');
            pen.fill(area);
          }
          pen.globalAlpha = this.stacked ? 0.35 : 0.12;
          pen.fillStyle = stroke;
          pen.fill(area);
          pen.globalAlpha = 1;
        }
        pen.stroke();
        pen.setLineDash([]);
      });
    }
    if (this.at !== null) this.#crosshair(pen, x, y, levels, above, inner);
  }

  #times(pen, width, height) {
    pen.fillStyle = color('muted');
    pen.textBaseline = 'alphabetic';
    const marks = [[0, 'left'], [0.5, 'center'], [1, 'right']];
    for (const [part, align] of marks) {
      pen.textAlign = align;
      const ago = Math.round((1 - part) * this.length) * this.step;
      const label = ago === 0 ? 'now' : `−${since(ago)}`;
      pen.fillText(label, part * width, height - 4);
    }
  }

  #crosshair(pen, x, y, levels, above, inner) {
    const at = Math.round(x(this.at)) + 0.5;
    pen.strokeStyle = color('muted');
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(at, above);
    pen.lineTo(at, above + inner.height);
    pen.stroke();
    levels.forEach((values, i) => {
      if (!Number.isFinite(values[this.at])) return;
      pen.beginPath();
      pen.arc(x(this.at), y(values[this.at]), 3.5, 0, 7);
      pen.fillStyle = color(this.series[i].which);
      pen.fill();
      pen.strokeStyle = color('card');
      pen.stroke();
    });
  }

  #point(event) {
    const box = this.plot.getBoundingClientRect();
    if (!this.frame || !this.length) return;
    const part = (event.clientX - box.left - this.frame.left) / this.frame.inner.width;
    this.#show(Math.round(part * (this.length - 1)));
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === 'Escape') this.#leave();
    if (!step || !this.length) return;
    event.preventDefault();
    this.#show((this.at ?? this.length - 1) + step * (event.shiftKey ? 10 : 1));
  }

  #show(at) {
    this.at = Math.max(0, Math.min(this.length - 1, at));
    this.surface.redraw();
    this.#tip();
  }

  #leave() {
    this.at = null;
    this.tip.hidden = true;
    this.surface.redraw();
  }

  #tip() {
    const ago = (this.length - 1 - this.at) * this.step;
    const rows = this.series
      .filter((one) => Number.isFinite(one.values[this.at]))
      .slice(0, 10)
      .map((one) => {
        const dot = h('i');
        dot.style.background = paint(one.which);
        return h('li', {}, dot, h('span', {}, one.name), h('b', {}, this.write(one.values[this.at])));
      });
    const when = ago === 0 ? 'now' : `${format.seconds(ago)} ago`;
    this.tip.replaceChildren(h('p', {}, when), h('ul', {}, rows.length ? rows : h('li', {}, 'nothing')));
    this.tip.hidden = false;
    const width = this.plot.clientWidth;
    const x = this.frame.x(this.at);
    const room = this.tip.offsetWidth + 12;
    this.tip.style.left = `${x + room > width ? Math.max(0, x - room) : x + 12}px`;
  }
}

/** A time before now, in its largest fitting unit. */
function since(seconds) {
  const [unit, size] = seconds >= 7200 ? ['h', 3600] : seconds >= 120 ? ['min', 60] : ['s', 1];
  return `${+(seconds / size).toFixed(1)} ${unit}`;
}

/** A heat map with one row per item: 0 is the background, 1 the full color. */
export class HeatMap {
  static ROW = 20;

  constructor({ label }) {
    this.label = label;
    this.names = h('ol', { class: 'heatnames' });
    this.surface = new Surface((...place) => this.#draw(...place), 'heat');
    this.element = h('div', { class: 'heatmap', role: 'img', 'aria-label': label }, this.names, this.surface.element);
    this.rows = [];
  }

  /** Rows are `{name, values}`. */
  update(rows) {
    this.rows = rows;
    while (this.names.children.length > rows.length) this.names.lastChild.remove();
    while (this.names.children.length < rows.length) this.names.append(h('li', {}, h('span'), h('b')));
    rows.forEach((row, i) => {
      const [name, now] = this.names.children[i].children;
      text(name, row.name);
      text(now, format.percent(row.values.at(-1)));
    });
    const height = `${rows.length * HeatMap.ROW}px`;
    if (this.surface.element.style.height !== height) this.surface.element.style.height = height;
    this.element.setAttribute('aria-label', `${this.label}: ${rows.length} rows`);
    this.surface.redraw();
  }

  #draw(pen, width) {
    const gap = 2;
    pen.fillStyle = color('accent');
    this.rows.forEach((row, r) => {
      const cells = Math.min(row.values.length, Math.floor(width / 3));
      const step = row.values.length / cells;
      for (let c = 0; c < cells; c += 1) {
        const [from, to] = [Math.floor(c * step), Math.floor((c + 1) * step)];
        const known = Array.from(row.values.slice(from, to)).filter(Number.isFinite);
        if (!known.length) continue;
        const mean = known.reduce((a, b) => a + b, 0) / known.length;
        pen.globalAlpha = 0.06 + 0.94 * mean;
        const [a, b] = [(c / cells) * width, ((c + 1) / cells) * width];
        pen.fillRect(a, r * HeatMap.ROW + gap / 2, b - a + 0.3, HeatMap.ROW - gap);
      }
    });
    pen.globalAlpha = 1;
  }
}

/** Counts by duration, on a logarithmic scale, with marks at percentiles. */
export class HistogramChart {
  constructor({ label }) {
    this.label = label;
    this.surface = new Surface((...place) => this.#draw(...place), 'plot');
    this.element = h('div', { class: 'chart', role: 'img', 'aria-label': label }, this.surface.element);
    Object.assign(this, { bars: [], marks: [] });
  }

  /** Bars are `{low, high, count}` in microseconds; marks are `{name, at}`. */
  update(bars, marks) {
    Object.assign(this, { bars, marks });
    const said = marks.map((m) => `${m.name} ${format.micros(m.at)}`).join(', ');
    this.element.setAttribute('aria-label', `${this.label}: ${said || 'no call yet'}`);
    this.surface.redraw();
  }

  #draw(pen, width, height) {
    const [above, below] = [30, 18];
    const inner = height - above - below;
    if (!this.bars.length) {
      pen.fillStyle = color('muted');
      pen.textAlign = 'center';
      pen.fillText('no call in this time', width / 2, height / 2);
      return;
    }
    const low = Math.log10(Math.max(this.bars[0].low, 0.1));
    const high = Math.max(Math.log10(this.bars.at(-1).high), low + 0.5);
    const pad = (high - low) * 0.04;
    const x = (us) => ((Math.log10(Math.max(us, 0.1)) - low + pad) / (high - low + 2 * pad)) * width;
    // The height is the density: a wider bar with the same count is lower.
    const dense = (bar) => bar.count / Math.max(x(bar.high) - x(bar.low), 0.5);
    const top = Math.max(...this.bars.map(dense));
    pen.strokeStyle = color('grid');
    pen.fillStyle = color('muted');
    pen.textAlign = 'center';
    const base = above + inner;
    for (let p = Math.floor(low - pad); p <= Math.ceil(high + pad); p += 1) {
      for (const m of high - low < 1.2 ? [1, 2, 5] : [1]) {
        const us = m * 10 ** p;
        const at = x(us);
        if (at < 14 || at > width - 14) continue;
        pen.beginPath();
        pen.moveTo(at, above);
        pen.lineTo(at, base);
        pen.stroke();
        pen.fillText(format.micros(us), at, height - 4);
      }
    }
    pen.fillStyle = color('accent');
    for (const bar of this.bars) {
      const [a, b] = [x(bar.low), x(bar.high)];
      const tall = Math.max((dense(bar) / top) * inner, 1.5);
      pen.fillRect(a + 0.5, base - tall, Math.max(b - a - 1, 1), tall);
    }
    pen.textAlign = 'left';
    this.marks.forEach((mark, i) => {
      const at = Math.round(x(mark.at)) + 0.5;
      pen.strokeStyle = color('text');
      pen.setLineDash([3, 3]);
      pen.beginPath();
      pen.moveTo(at, 12 + (i % 2) * 13);
      pen.lineTo(at, base);
      pen.stroke();
      pen.setLineDash([]);
      const label = `${mark.name} ${format.micros(mark.at)}`;
      const wide = pen.measureText(label).width;
      pen.fillStyle = color('text');
      pen.fillText(label, Math.min(at + 3, width - wide - 1), 11 + (i % 2) * 13);
    });
  }
}
