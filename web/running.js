// The running tasks of devices, with a button to end each.

import { h, route } from './dom.js';
import { confirmAction, reported } from './action.js';
import { Table, word, number } from './table.js';
import * as format from './format.js';

/** The running tasks of devices, each with its device. */
export function tasksOf(devices) {
  return devices.flatMap((device) => device.running.map((task) => ({ ...task, device })));
}

/** The programs that may have started a task. */
export const programs = (task) => task.programs.join(', ') || `executor ${task.executor_pid}`;

/** The time without progress after which a task is ended. */
export function limitOf(task) {
  if (task.limit_ms == null) return 'none';
  return format.seconds(task.limit_ms / 1000) + (task.limit_contended ? ' while others wait' : '');
}

export class RunningTable {
  constructor(look, id) {
    this.look = look;
    const seconds = (ms) => format.seconds(ms / 1000);
    this.table = new Table({
      id,
      caption: 'Running tasks',
      key: (task) => JSON.stringify([task.device.node, task.device.name, task.id]),
      href: (task) => route('devices', task.device.node, task.device.name),
      columns: [
        word('Device', (task) => task.device.name),
        word('Node', (task) => task.device.node),
        word('Tenant', (task) => task.tenant),
        word('Program', programs),
        number('Since', (task) => task.running_ms, (ms) => format.clock(look.store.state.at_ms - ms)),
        number('Running', (task) => task.running_ms, seconds),
        number('Without progress', (task) => task.stalled_ms, seconds),
        { label: 'Time limit', sort: (task) => task.limit_ms ?? Infinity, text: limitOf },
        { label: 'Action', sort: () => 0, make: () => this.#button() },
      ],
      sort: 6,
      down: true,
    });
    this.element = this.table.element;
  }

  update(devices) {
    const tasks = tasksOf(devices);
    this.element.hidden = tasks.length === 0;
    this.table.update(tasks);
    return tasks.length;
  }

  #button() {
    let task = null;
    const element = h('button', { type: 'button', class: 'plain', click: () => this.#ask(task) }, 'End …');
    return {
      element,
      update: (row) => {
        task = row;
        element.setAttribute('aria-label', `End the task of ${row.tenant} on ${row.device.name}`);
      },
    };
  }

  #ask(task) {
    const { node, name, deaths } = task.device;
    const others = task.sessions === 1 ? 'Its session ends' : `All ${task.sessions} sessions of this executor end`;
    confirmAction({
      store: this.look.store,
      title: `End the task of ${task.tenant} on ${name} of ${node}`,
      effect: `Executor ${task.executor_pid} is killed, as when the task exceeds its time limit. ${others} with an error. Program: ${programs(task)}.`,
      button: 'End the task',
      action: 'end',
      body: () => ({ device: `${node}/${name}`, task: task.id }),
      observed: (state) => {
        const device = reported(state, node, name);
        if (!device || device.running.some((one) => one.id === task.id)) return null;
        return device.deaths > deaths ? 'The task no longer runs; an executor has ended.' : 'The task no longer runs.';
      },
    });
  }
}

/** Cordons, uncordons and drains one device. */
export class DeviceActions {
  constructor(look, node, name) {
    Object.assign(this, { look, node, name });
    const make = (label, ask) => h('button', { type: 'button', class: 'plain', click: ask }, label);
    const ask = (title, effect, action, seen, shown) => () => confirmAction({
      store: look.store,
      title: `${title} ${name} of ${node}`,
      effect,
      button: title,
      action,
      body: () => ({ device: `${node}/${name}` }),
      observed: (state) => (seen(reported(state, node, name)?.state) ? shown : null),
    });
    this.cordon = make('Cordon …', ask('Cordon', 'The device accepts no new instances and keeps its present ones.',
      'cordon', (s) => s === 'cordoned' || s === 'draining', 'The device is cordoned.'));
    this.uncordon = make('Uncordon …', ask('Uncordon', 'The device accepts new instances again.',
      'uncordon', (s) => s === 'ready', 'The device accepts new instances.'));
    this.drain = make('Drain …', ask('Drain', 'The device accepts no new instances, and its present ones move to other devices.',
      'drain', (s) => s === 'draining', 'The device is being drained.'));
    this.element = h('div', { class: 'row' }, this.cordon, this.uncordon, this.drain);
  }

  update(device) {
    const closed = device.state === 'cordoned' || device.state === 'draining';
    this.element.hidden = !this.look.store.state.registry;
    this.cordon.hidden = closed;
    this.uncordon.hidden = !closed;
    this.drain.hidden = device.state === 'draining';
  }
}
