// The page's data: the newest state, ten minutes of points, and longer spans on request.

import * as format from './format.js';

export const POINTS = 600;

/** The last points of a value, one per tick; NaN if unknown. */
export class Series {
  #values = new Float64Array(POINTS).fill(NaN);
  #tick = 0;

  static of(points, tick) {
    const series = new Series();
    series.#tick = tick - points.length;
    points.forEach((point, i) => series.push(tick - points.length + 1 + i, point));
    return series;
  }

  /** Adds a tick's point. Missed ticks are gaps. */
  push(tick, point) {
    if (tick <= this.#tick) return;
    const missed = Math.min(tick - this.#tick - 1, POINTS);
    for (let i = 1; i <= missed; i += 1) this.#values[(tick - i) % POINTS] = NaN;
    this.#values[tick % POINTS] = point ?? NaN;
    this.#tick = tick;
  }

  /** The last `n` points up to `tick`, the oldest first. */
  last(n, tick = this.#tick) {
    const points = new Float64Array(n);
    for (let i = 0; i < n; i += 1) {
      const at = tick - n + 1 + i;
      const there = at > 0 && at <= this.#tick && at > this.#tick - POINTS;
      points[i] = there ? this.#values[at % POINTS] : NaN;
    }
    return points;
  }
}

/** The unique key of a device. */
export const deviceKey = (device) => JSON.stringify([device.node, device.name]);

const TOTALS = ['utilization', 'rate', 'errors', 'p50_us', 'p99_us', 'queued', 'cold'];
const OF_DEVICE = ['utilization', 'tasks'];
const OF_FUNCTION = ['rate', 'errors', 'p50_us', 'p99_us', 'queued'];

function group(names, source, tick) {
  return Object.fromEntries(names.map((name) => [name, Series.of(source?.[name] ?? [], tick)]));
}

/** The series of one span. */
class Lines {
  constructor(history = { tick: 0, step: 1, devices: [], functions: [] }) {
    const { tick, step } = history;
    Object.assign(this, { tick, step });
    this.total = group(TOTALS, history.total, tick);
    this.devices = new Map(history.devices.map((d) => [deviceKey(d), group(OF_DEVICE, d, tick)]));
    this.functions = new Map(history.functions.map((f) => [f.name, group(OF_FUNCTION, f, tick)]));
  }

  /** Adds a state, whose ticks are the points of the shortest span. */
  take(state) {
    const { tick } = state;
    this.tick = tick;
    for (const name of TOTALS) this.total[name].push(tick, state.total[name]);
    for (const device of state.devices) {
      const key = deviceKey(device);
      if (!this.devices.has(key)) this.devices.set(key, group(OF_DEVICE, null, 0));
      const series = this.devices.get(key);
      series.utilization.push(tick, device.utilization);
      series.tasks.push(tick, device.tasks_rate);
    }
    for (const f of state.functions) {
      if (!this.functions.has(f.name)) this.functions.set(f.name, group(OF_FUNCTION, null, 0));
      const series = this.functions.get(f.name);
      series.rate.push(tick, f.rate);
      series.errors.push(tick, f.errors_rate);
      series.queued.push(tick, f.queued);
      // The row's own percentiles cover ten seconds.
      series.p50_us.push(tick, f.tick_p50_us);
      series.p99_us.push(tick, f.tick_p99_us);
    }
    this.#forget(this.devices, new Set(state.devices.map(deviceKey)));
    this.#forget(this.functions, new Set(state.functions.map((f) => f.name)));
  }

  #forget(series, there) {
    for (const key of series.keys()) if (!there.has(key)) series.delete(key);
  }
}

export class Store {
  state = null;
  recent = new Lines();
  /** Longer spans by name; a span that was not requested is missing. */
  #longer = new Map();
  #colors = new Map();

  /** Replaces the series of the last ten minutes by the gateway's. */
  takeHistory(history) {
    this.recent = new Lines(history);
  }

  takeState(state) {
    this.state = state;
    this.recent.take(state);
  }

  /** Replaces the series of a longer span. */
  takeSpan(name, history) {
    this.#longer.set(name, new Lines(history));
  }

  /** The series of a span; without points if it has not been received. */
  lines(span) {
    return span === 'recent' ? this.recent : this.#longer.get(span) ?? new Lines();
  }

  /** The color index of a name, stable while the page is open. */
  color(name) {
    if (!this.#colors.has(name)) this.#colors.set(name, this.#colors.size);
    return this.#colors.get(name);
  }
}

const FAULTS = { failed: 'bad', lost: 'bad', starting: 'note', cordoned: 'note', draining: 'note' };

/** A task without a completed command for this time is reported. */
const STALLED_MS = 30_000;

/** Why a node is not ready, and for a lost one since when. */
function reasonOf(node, state) {
  if (node.state !== 'lost' || !node.heard_ms) return node.reason; // text-ok
  const at = format.clock(state.at_ms - node.heard_ms); // text-ok
  return `since ${at}: no heartbeat for ${format.seconds(node.heard_ms / 1000)}. ${node.reason}`; // text-ok
}

/** Problems for the operator, the worst first. */
export function problems(state) {
  const list = [];
  const say = (level, what, why, href) => list.push({ level, what, why, href });
  if (state.registry && !state.registry.reachable) {
    say('bad', `Registry ${state.registry.address} does not respond`,
      `for ${state.registry.since_s} s; running instances continue. ${state.registry.reason}`, null);
  }
  for (const node of state.nodes) {
    if (FAULTS[node.state]) say(FAULTS[node.state], `Node ${node.name} is ${node.state}`, reasonOf(node, state), ['nodes']);
  }
  const lost = new Set(state.nodes.filter((n) => n.state === 'lost').map((n) => n.name));
  for (const device of state.devices) {
    // A lost node's devices are lost with it: reported once.
    if (lost.has(device.node) || !FAULTS[device.state]) continue;
    say(FAULTS[device.state], `Device ${device.name} of ${device.node} is ${device.state}`, device.reason,
      ['devices', device.node, device.name]);
  }
  for (const device of state.devices) {
    for (const task of device.running.filter((t) => t.stalled_ms >= STALLED_MS)) {
      const limit = task.limit_ms == null ? 'It has no time limit.' : '';
      say('bad', `A task of ${task.tenant} on ${device.name} of ${device.node} makes no progress`,
        `for ${format.seconds(task.stalled_ms / 1000)}. ${limit}`, ['devices', device.node, device.name]);
    }
  }
  for (const alert of state.alerts?.firing ?? []) {
    const since = Date.parse(alert.since);
    say(alert.severity === 'critical' ? 'bad' : 'note', `Alert ${alert.name}`,
      `${alert.summary}${Number.isNaN(since) ? '' : `, since ${format.clock(since)}`}`, null);
  }
  if (state.alerts?.reason) say('note', `Alerts of ${state.alerts.address} are unknown`, state.alerts.reason, null);
  for (const f of state.functions) {
    if (f.reason) say('bad', `Function ${f.name} cannot be called`, f.reason, ['functions', f.name]);
    else if (f.rate > 0 && f.errors_rate / f.rate > 0.01) {
      say('bad', `Function ${f.name} fails ${Math.round((100 * f.errors_rate) / f.rate)} % of its calls`, '',
        ['functions', f.name]);
    }
  }
  return list.sort((a, b) => (a.level === b.level ? 0 : a.level === 'bad' ? -1 : 1));
}
