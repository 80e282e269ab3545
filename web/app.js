// The frame: selects the view, supplies its data, and shows the state of the connection.

import { h, s, text, mark, route } from './dom.js';
import { choice } from './parts.js';
import { Connection } from './stream.js';
import { Series, Store, deviceKey, problems } from './store.js';
import { Overview } from './views/overview.js';
import { Functions } from './views/functions.js';
import { FunctionView } from './views/function.js';
import { Devices } from './views/devices.js';
import { DeviceView } from './views/device.js';
import { Tenants } from './views/tenants.js';
import { Nodes } from './views/nodes.js';

const $ = (id) => document.getElementById(id);
const store = new Store();

const VIEWS = [
  { path: '', label: 'Overview', icon: 'M3 13h7V3H3zm11 8h7V11h-7zM3 21h7v-5H3zM14 3v5h7V3z', make: () => new Overview(look) },
  { path: 'functions', label: 'Functions', icon: 'M13 2 4 14h6l-1 8 9-12h-6z', make: (name) => (name ? new FunctionView(look, name) : new Functions(look)), count: 'functions' },
  { path: 'devices', label: 'Devices', icon: 'M7 7h10v10H7zM9 2v4m6-4v4M9 18v4m6-4v4M2 9h4m-4 6h4m12-6h4m-4 6h4', make: (node, name) => (name !== undefined ? new DeviceView(look, node, name) : new Devices(look)), count: 'devices' },
  { path: 'tenants', label: 'Tenants', icon: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zm-8 9c0-5 3-7 8-7s8 2 8 7', make: () => new Tenants(look), count: 'tenants' },
  { path: 'nodes', label: 'Nodes', icon: 'M3 4h18v6H3zm0 10h18v6H3zM7 7h1m-1 10h1', make: () => new Nodes(look), count: 'nodes' },
];

const RANGES = [
  ['1 min', { span: 'recent', points: 60 }],
  ['5 min', { span: 'recent', points: 300 }],
  ['10 min', { span: 'recent', points: 600 }],
  ['1 h', { span: 'hour', points: 600, every_s: 30 }],
  ['24 h', { span: 'day', points: 600, every_s: 150 }],
];
let [, [, chosen]] = RANGES;

/** The context of views: the data, and the selected time range. */
const look = {
  store,
  filter: '',
  /** A gateway that started within the selected range has fewer points. */
  get points() {
    return Math.max(Math.min(chosen.points, store.lines(chosen.span).tick), 30);
  },
  /** Seconds of each point. */
  get step() {
    return store.lines(chosen.span).step;
  },
  /** The points of a value of everything, of a device or of a function in the selected range. */
  total: (name) => pointsOf(store.lines(chosen.span).total[name]),
  device: (device, name) => pointsOf(store.lines(chosen.span).devices.get(deviceKey(device))?.[name]),
  function: (f, name) => pointsOf(store.lines(chosen.span).functions.get(f.name)?.[name]),
};

/** A series that the selected range lacks is a gap. */
function pointsOf(series = new Series()) {
  return series.last(look.points, store.lines(chosen.span).tick);
}

let view = null;
let held = false;
let connection = { live: false };
const main = $('main');

// --- navigation

const links = VIEWS.map(({ path, label, icon }) => {
  const count = h('small');
  const link = h('a', { href: path ? route(path) : '#/' },
    s('svg', { viewBox: '0 0 24 24', width: '20', height: '20', 'aria-hidden': 'true' }, s('path', { d: icon })),
    h('span', {}, label), count);
  $('nav').append(link);
  return { link, count };
});

/** The names in the address; malformed parts are ignored. */
function names() {
  try {
    return location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  } catch {
    return [''];
  }
}

function go() {
  const [path, ...rest] = names();
  const at = Math.max(VIEWS.findIndex((v) => v.path === path), 0);
  links.forEach(({ link }, i) => {
    if (i === at) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  view?.close?.();
  view = VIEWS[at].make(...rest);
  main.replaceChildren(store.state ? view.element : h('p', { class: 'waiting' }, 'Waiting for the gateway …'));
  if (store.state) view.update();
  scrollTo(0, 0);
}

addEventListener('hashchange', () => {
  go();
  main.focus({ preventScroll: true });
});

// --- events

function show() {
  if (!store.state) return;
  if (!view.element.isConnected) main.replaceChildren(view.element);
  view.update();
  VIEWS.forEach(({ count }, i) => count && text(links[i].count, store.state[count].length));
  const list = problems(store.state);
  document.title = `${list.length ? `(${list.length}) ` : ''}Baltra`;
  showProblems(list);
}

let shown = '';

function showProblems(list) {
  const most = 5;
  const wanted = JSON.stringify(list);
  if (wanted === shown) return;
  shown = wanted;
  const rows = list.slice(0, most).map(({ level, what, why, href }) =>
    h('li', { class: level }, href ? h('a', { href: route(...href) }, what) : h('strong', {}, what), why ? h('span', {}, why) : null));
  if (list.length > most) rows.push(h('li', {}, `and ${list.length - most} more`));
  $('problems').replaceChildren(...rows);
  $('problems').hidden = !rows.length;
}

/** When the selected longer span was last requested, in the page's time. */
let fetched = -Infinity;

/** Requests the selected range from time to time; the stream has the last ten minutes only. */
async function fetchSpan() {
  const { span, every_s: every } = chosen;
  if (!every || performance.now() - fetched < every * 1000) return;
  fetched = performance.now();
  try {
    const answer = await fetch(`api/history?span=${span}`, { cache: 'no-store' });
    if (answer.ok) store.takeSpan(span, await answer.json());
    if (!held) show();
  } catch {
    // The stream reports a lost connection; the next attempt is due after the same time.
  }
}

const link = new Connection({
  history: (history) => store.takeHistory(history),
  state: (state) => {
    store.takeState(state);
    if (held) return;
    show();
    fetchSpan();
  },
  status: (status) => {
    connection = status;
    showConnection();
  },
});

const why = h('span');
const next = h('span');
$('lost').append(h('strong', {}, 'Connection lost. '), why, next,
  h('button', { type: 'button', click: () => link.retry() }, 'Retry now'));

function showConnection() {
  const { live, reason, since, next: at } = connection;
  const lost = !live && reason !== undefined;
  text($('status'), lost ? 'lost' : held ? 'held' : live ? 'live' : 'connecting');
  $('status').className = `status ${lost ? 'bad' : held ? 'note' : live ? 'good' : ''}`;
  mark(document.body, 'stale', lost);
  $('lost').hidden = !lost;
  if (!lost) return;
  const shownAt = new Date(since).toLocaleTimeString([], { hour12: false });
  text(why, `${reason[0].toUpperCase()}${reason.slice(1)}; showing data of ${shownAt}. `);
  const wait = Math.ceil((at - Date.now()) / 1000);
  text(next, wait > 0 ? `Retrying in ${wait} s. ` : 'Retrying … ');
}

setInterval(showConnection, 500);

// --- tools

choice($('range'), RANGES, chosen, (range) => {
  chosen = range;
  fetched = -Infinity;
  show();
  fetchSpan();
});

$('filter').addEventListener('input', (event) => {
  look.filter = event.target.value.trim().toLowerCase();
  show();
});

function hold() {
  held = !held;
  $('pause').setAttribute('aria-pressed', String(held));
  text($('pause'), held ? 'Resume' : 'Pause');
  showConnection();
  if (!held) show();
}

$('pause').addEventListener('click', hold);

addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, textarea, select');
  if (event.key === 'Escape' && event.target === $('filter')) {
    $('filter').value = '';
    look.filter = '';
    show();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') {
    event.preventDefault();
    $('filter').focus();
  } else if (event.key === 'p') hold();
});

go();
link.run();
