// Operators' actions: a dialog asks for confirmation and the operator's token, sends the order, and
// reports its effect as soon as the state shows it.

import { h, text } from './dom.js';
import * as format from './format.js';

const LOOK_MS = 250;

/** Sends an order about a device, which the registry carries out. */
const toRegistry = (action) => (body, token) => fetch(`api/device/${action}`, {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-operator-token': token },
  body: JSON.stringify(body),
  cache: 'no-store',
});

/**
 * Opens the dialog. `effect` explains the consequence; `action` and `body()` are the order, and
 * `fields` are elements for its parameters; `observed(state, reply)` returns a sentence once the state
 * shows the effect, or an error once it shows that there is none. The token is not stored. `order`
 * replaces the registry, and needs no token.
 */
export function confirmAction({ store, title, effect, button, action, body, observed, fields = [], order = null }) {
  const token = h('input', { type: 'password', name: 'operator-token', autocomplete: 'off', spellcheck: 'false' });
  const result = h('p', { class: 'result', role: 'status' });
  const go = h('button', { type: 'submit', class: 'danger' }, button);
  const close = h('button', { type: 'button', class: 'plain', click: () => dialog.close() }, 'Close');
  const form = h('form', { submit: (event) => send(event) },
    h('h2', { id: 'action-title' }, title),
    h('p', {}, effect),
    fields,
    order ? null : h('label', { class: 'field' }, h('span', {}, 'Operator\'s token of the registry, if it has one'), token),
    result, h('div', { class: 'row' }, go, close));
  const dialog = h('dialog', { class: 'action', 'aria-labelledby': 'action-title' }, form);
  let timer = null;
  dialog.addEventListener('close', () => {
    clearInterval(timer);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();

  async function send(event) {
    event.preventDefault();
    go.disabled = true;
    text(result, 'Sending the order …');
    try {
      const reply = await (order ?? toRegistry(action))(body(), token.value);
      const answer = (await reply.text()).trim();
      if (reply.ok) wait(Date.now(), parsed(answer));
      else fail(parsed(answer)?.detail ?? (answer || `status ${reply.status}`));
    } catch (error) {
      fail(`no response: ${error.message}`);
    }
  }

  function fail(why) {
    go.disabled = false;
    text(result, `Refused: ${why}`);
  }

  function wait(ordered, reply) {
    text(result, `Ordered at ${format.clock(ordered)}; no effect observed yet.`);
    timer = setInterval(() => {
      const seen = observed(store.state, reply);
      if (!seen) return;
      clearInterval(timer);
      if (seen.error) fail(seen.error);
      else text(result, `${seen} Observed at ${format.clock(Date.now())}.`);
    }, LOOK_MS);
  }
}

/** A response in JSON; null if it is plain text. */
function parsed(answer) {
  try {
    return JSON.parse(answer);
  } catch {
    return null;
  }
}

/** A device's row of the state, if its node reports. */
export function reported(state, node, name) {
  const device = state.devices.find((d) => d.node === node && d.name === name);
  return device && !['lost', 'starting'].includes(device.state) ? device : null;
}
