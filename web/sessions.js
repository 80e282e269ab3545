// The open sessions of devices, with their memory and a button to move each.

import { h, route } from './dom.js';
import { confirmAction } from './action.js';
import { Table, word, number } from './table.js';
import * as format from './format.js';

/** The sessions of a state that are on some of its devices. */
function sessionsOf(state, devices) {
  const there = new Set(devices.map((d) => JSON.stringify([d.node, d.name])));
  return state.sessions.filter((s) => there.has(JSON.stringify([s.node, s.device])));
}

/** Whether a session can move, and why not. */
export function moves(session) {
  if (session.obstacle) return `no: ${session.obstacle}`;
  return session.can_move == null ? 'unknown' : 'yes';
}

export class SessionTable {
  constructor(look, id) {
    this.look = look;
    this.table = new Table({
      id,
      caption: 'Sessions',
      key: (s) => JSON.stringify([s.node, s.id]),
      href: (s) => route('devices', s.node, s.device),
      columns: [
        word('Device', (s) => s.device),
        word('Node', (s) => s.node),
        word('Session', (s) => s.id),
        word('Tenant', (s) => s.tenant),
        word('Program', (s) => s.program),
        number('Open', (s) => s.age_s, format.seconds),
        number('Resident', (s) => s.resident_bytes, format.bytes),
        number('Swapped', (s) => s.swapped_bytes, format.bytes),
        number('Queues', (s) => s.queues, format.count),
        { label: 'Can move', sort: moves, text: moves },
        { label: 'Action', sort: () => 0, make: () => this.#button() },
      ],
      sort: 6,
      down: true,
    });
    this.element = this.table.element;
  }

  update(devices) {
    const sessions = sessionsOf(this.look.store.state, devices);
    this.element.hidden = sessions.length === 0;
    this.table.update(sessions);
    return sessions.length;
  }

  #button() {
    let session = null;
    const element = h('button', { type: 'button', class: 'plain', click: () => this.#ask(session) }, 'Move …');
    return {
      element,
      update: (row) => {
        session = row;
        element.setAttribute('aria-label', `Move session ${row.id} of ${row.tenant}`);
        element.disabled = row.can_move !== true || this.#targets(row).length === 0;
      },
    };
  }

  /** The node's other devices that can be used. */
  #targets(session) {
    return this.look.store.state.devices.filter((d) =>
      d.node === session.node && d.name !== session.device && d.state === 'ready');
  }

  #ask(session) {
    const { node, device, id } = session;
    const targets = this.#targets(session).map((d) => h('option', { value: d.name }, `${d.name} (${d.model})`));
    const to = h('select', { name: 'to', required: true }, targets);
    confirmAction({
      store: this.look.store,
      title: `Move session ${id} of ${session.tenant} from ${device} of ${node}`,
      effect: `Program ${session.program} continues on the other device after a short pause, with its buffers, programs and waiting commands. If it cannot move, it continues on ${device}.`,
      button: 'Move the session',
      fields: [h('label', { class: 'field' }, h('span', {}, 'Device'), to)],
      action: 'move',
      body: () => ({ device: `${node}/${device}`, session: id, to: to.value }),
      observed: (state, { order }) => {
        const result = state.moved.find((one) => one.node === node && one.order === order);
        if (result?.error) return { error: result.error };
        const there = state.sessions.some((s) => s.node === node && s.id === id && s.device === result?.to);
        if (!there) return null;
        return `The session is on ${result.to}; it was stopped for ${format.micros(result.stopped_us)}.`;
      },
    });
  }
}
