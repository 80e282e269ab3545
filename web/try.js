// Calls a function from the page: method, path, query, headers and body; shows the response.

import { h, text } from './dom.js';
import { paint } from './chart.js';
import { Badge, card, choice } from './parts.js';
import * as format from './format.js';

const TEXT_MAX = 64 * 1024;
const DUMP_BYTES = 512;
/** Image types that a browser displays but cannot execute. */
const IMAGES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/bmp']);
const SHOWN = new Set(['content-type', 'server-timing', 'traceparent', 'retry-after', 'allow']);
const TYPES = { raw: 'application/octet-stream', json: 'application/json', npy: 'application/x-npy', png: 'image/png', jpeg: 'image/jpeg' };

/** A labeled control. */
function field(label, control, note) {
  return h('label', { class: 'field' }, h('span', {}, label, note ? h('small', {}, note) : null), control);
}

export class Try {
  constructor(name) {
    this.name = name;
    this.contract = null;
    this.mode = 'none';
    this.url = null;
    this.method = h('select', { 'aria-label': 'Method', name: 'method' });
    this.path = h('input', { type: 'text', placeholder: '/', spellcheck: 'false', autocomplete: 'off', 'aria-label': 'Path below the function', name: 'path' });
    this.query = h('input', { type: 'text', placeholder: 'width=640&height=480', spellcheck: 'false', autocomplete: 'off', name: 'query' });
    this.fields = h('div', { class: 'fields' });
    this.kind = h('input', { type: 'text', placeholder: 'from the body', spellcheck: 'false', autocomplete: 'off', name: 'type', list: 'types' });
    this.accept = h('input', { type: 'text', placeholder: '*/*', spellcheck: 'false', autocomplete: 'off', name: 'accept', list: 'types' });
    this.key = h('input', { type: 'password', placeholder: 'none', autocomplete: 'off', name: 'key' });
    this.file = h('input', { type: 'file', name: 'file', 'aria-label': 'Body from a file', change: () => this.#command() });
    this.area = h('textarea', { rows: '4', spellcheck: 'false', name: 'body', 'aria-label': 'Body' });
    this.modes = h('div', { class: 'switch', role: 'group', 'aria-label': 'Body' });
    this.button = h('button', { type: 'submit', class: 'main' }, 'Send');
    this.code = h('code');
    this.answer = new Answer();
    this.form = h(
      'form',
      { class: 'try', submit: (event) => { event.preventDefault(); this.#send(); }, input: () => this.#command() },
      h('div', { class: 'address' }, this.method, h('span', { class: 'base' }, `/function/${name}`), this.path),
      this.fields,
      h('div', { class: 'fields' }, field('Query', this.query, 'further parameters'), field('Content type', this.kind), field('Accept', this.accept), field('API key', this.key, 'not kept')),
      h('div', { class: 'body' }, h('div', { class: 'row' }, h('span', {}, 'Body'), this.modes), this.area, this.file),
      h('div', { class: 'row' }, this.button, h('pre', { class: 'curl', 'aria-label': 'The same with curl', tabindex: '0' }, this.code)),
      h('datalist', { id: 'types' }, Object.values(TYPES).map((value) => h('option', { value }))),
    );
    this.element = card('Call it', this.form, this.answer.element);
    this.#mode('none');
  }

  close() {
    this.abort?.abort();
    this.answer.close();
  }

  /** Sets the function's contract; a change rebuilds the form. */
  update(contract) {
    const wanted = JSON.stringify(contract);
    if (wanted === this.contract) return;
    this.contract = wanted;
    const methods = contract.methods.length ? contract.methods : ['POST'];
    this.method.replaceChildren(...methods.map((m) => h('option', { value: m }, m)));
    this.inputs = contract.inputs
      .filter((input) => input.from === 'query' || input.from === 'header')
      .map((input) => {
        const note = [input.type, input.shape, input.from === 'header' ? 'header' : ''].filter(Boolean).join(' ');
        const control = h('input', { type: 'text', inputmode: 'decimal', placeholder: input.default ?? '', autocomplete: 'off', name: `input-${input.name}` });
        return { input, control, element: field(input.name, control, note) };
      });
    this.fields.replaceChildren(...this.inputs.map((one) => one.element));
    const body = contract.inputs.filter((input) => input.from === 'body');
    const codecs = body.flatMap((input) => input.codecs);
    this.kind.value = '';
    if (codecs.includes('png') || codecs.includes('jpeg')) this.file.setAttribute('accept', 'image/*,.npy,*');
    const mode = !body.length ? 'none' : codecs[0] === 'json' ? 'text' : 'file';
    if (body.length && codecs.length) this.kind.value = TYPES[codecs[0]] ?? '';
    this.#mode(mode);
    this.#command();
  }

  #mode(mode) {
    this.mode = mode;
    choice(this.modes, [['none', 'none'], ['text', 'text'], ['hex', 'hex'], ['file', 'file']], mode, (m) => this.#mode(m));
    this.area.hidden = mode !== 'text' && mode !== 'hex';
    this.area.placeholder = mode === 'hex' ? '00 01 fe ff' : '';
    this.file.hidden = mode !== 'file';
    this.#command();
  }

  #query() {
    const query = new URLSearchParams(this.query.value.replace(/^\?/, ''));
    for (const { input, control } of this.inputs ?? []) {
      if (input.from === 'query' && control.value !== '') query.set(input.name, control.value);
    }
    const line = query.toString();
    return line && `?${line}`;
  }

  #target() {
    const path = this.path.value.split('/').filter(Boolean).map(encodeURIComponent).join('/');
    return `/function/${encodeURIComponent(this.name)}${path && `/${path}`}${this.#query()}`;
  }

  /** Headers as pairs; a key is omitted from the shown command. */
  #headers(shown) {
    const headers = [];
    for (const { input, control } of this.inputs ?? []) {
      if (input.from === 'header' && control.value !== '') headers.push([input.header || `x-${input.name}`, control.value]);
    }
    if (this.mode !== 'none' && this.kind.value) headers.push(['content-type', this.kind.value]);
    if (this.accept.value) headers.push(['accept', this.accept.value]);
    if (this.key.value) headers.push(['x-api-key', shown ? '…' : this.key.value]);
    return headers;
  }

  #command() {
    const quote = (word) => (/^[\w./:=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    const words = ['curl'];
    const method = this.method.value || 'POST';
    const usual = this.mode === 'none' ? 'GET' : 'POST';
    if (method !== usual) words.push('-X', method);
    for (const [name, value] of this.#headers(true)) words.push('-H', quote(`${name}: ${value}`));
    if (this.mode === 'text') words.push('--data-binary', quote(this.area.value.length > 200 ? '@body' : this.area.value || '@body'));
    if (this.mode === 'hex') words.push('--data-binary', '@body');
    if (this.mode === 'file') words.push('--data-binary', quote(`@${this.file.files[0]?.name ?? 'FILE'}`));
    words.push(quote(location.origin + this.#target()));
    text(this.code, words.join(' '));
  }

  /** The body, or null; throws if it cannot be sent. */
  #body() {
    if (this.mode === 'none') return null;
    if (this.mode === 'text') return this.area.value;
    if (this.mode === 'hex') {
      const digits = this.area.value.replace(/\s/g, '');
      if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error('The body is not pairs of hexadecimal digits.');
      return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
    }
    const [file] = this.file.files;
    if (!file) throw new Error('Choose a file for the body.');
    return file;
  }

  async #send() {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    const method = this.method.value || 'POST';
    let body;
    let headers;
    try {
      body = this.#body();
      if (body !== null && (method === 'GET' || method === 'HEAD')) throw new Error(`A browser sends no body with ${method}.`);
      headers = new Headers(this.#headers(false));
    } catch (error) {
      this.answer.fail(error.message);
      return;
    }
    // A file's own type, unless one is given.
    if (body instanceof Blob && !this.kind.value) headers.set('content-type', body.type || TYPES.raw);
    this.answer.wait();
    const begun = performance.now();
    try {
      // Relative, so that the console also works behind a proxy's path prefix.
      const answer = await fetch(`..${this.#target()}`, { method, headers, body, signal: abort.signal, cache: 'no-store' });
      const bytes = await answer.arrayBuffer();
      this.answer.show(answer, bytes, performance.now() - begun);
    } catch (error) {
      if (!abort.signal.aborted) this.answer.fail(`No response: ${error.message}`);
    }
  }
}

/** The response. */
class Answer {
  constructor() {
    this.badge = new Badge();
    this.line = h('span');
    this.headers = h('dl', { class: 'headers' });
    this.timing = h('div', { class: 'timing' });
    this.content = h('div', { class: 'content' });
    this.save = h('a', { class: 'plain', download: 'answer' }, 'Save');
    this.element = h('div', { class: 'answer', 'aria-live': 'polite', hidden: true },
      h('div', { class: 'row' }, this.badge.element, this.line, this.save), this.timing, this.headers, this.content);
    this.urls = [];
  }

  close() {
    this.urls.forEach((url) => URL.revokeObjectURL(url));
    this.urls = [];
  }

  #reset(state, line) {
    this.close();
    this.element.hidden = false;
    this.badge.update(state);
    text(this.line, line);
    this.headers.replaceChildren();
    this.timing.replaceChildren();
    this.content.replaceChildren();
    this.save.hidden = true;
  }

  wait() {
    this.#reset('waiting', '');
  }

  fail(why) {
    this.#reset('failed', why);
  }

  show(answer, bytes, ms) {
    this.#reset(answer.ok ? 'ready' : 'failed', `${format.bytes(bytes.byteLength)} in ${format.micros(ms * 1000)}`);
    text(this.badge.word, `${answer.status} ${answer.statusText}`.trim());
    this.timing.replaceChildren(...timing(answer.headers.get('server-timing')));
    const shown = [...answer.headers].filter(([name]) => name.startsWith('x-') || SHOWN.has(name));
    this.headers.replaceChildren(...shown.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
    const kind = (answer.headers.get('content-type') ?? '').split(';')[0].trim().toLowerCase();
    // Saved as plain bytes: opened in the browser, it would have the page's origin.
    this.save.href = this.#url(bytes, TYPES.raw);
    this.save.hidden = bytes.byteLength === 0;
    if (bytes.byteLength) this.content.append(this.#content(kind, bytes));
  }

  #url(bytes, type) {
    const url = URL.createObjectURL(new Blob([bytes], { type }));
    this.urls.push(url);
    return url;
  }

  #content(kind, bytes) {
    if (IMAGES.has(kind)) return h('img', { src: this.#url(bytes, kind), alt: 'The response' });
    if (kind.endsWith('json')) return h('pre', { tabindex: '0' }, pretty(decode(bytes)));
    if (kind.startsWith('text/')) return h('pre', { tabindex: '0' }, decode(bytes));
    return h('pre', { tabindex: '0' }, dump(new Uint8Array(bytes)));
  }
}

/** The call's times from the gateway: a bar of its parts, and their names. */
function timing(header) {
  const steps = (header ?? '').split(',').flatMap((part) => {
    const [name, ...parameters] = part.trim().split(';');
    const ms = Number(parameters.find((p) => p.trim().startsWith('dur='))?.trim().slice(4));
    return Number.isFinite(ms) && name ? [{ name, us: ms * 1000 }] : [];
  });
  if (!steps.length) return [];
  const total = steps.find((step) => step.name === 'total');
  const parts = steps.filter((step) => step !== total && step.us > 0);
  const spent = parts.reduce((sum, step) => sum + step.us, 0);
  if (total && total.us > spent) parts.push({ name: 'other', us: total.us - spent });
  const whole = Math.max(total?.us ?? 0, spent, 1);
  const dot = (i) => {
    const mark = h('i');
    mark.style.background = paint(parts[i].name === 'other' ? 'muted' : i);
    return mark;
  };
  const bar = parts.map((step, i) => {
    const one = dot(i);
    one.style.width = `${(100 * step.us) / whole}%`;
    return one;
  });
  const names = parts.map((step, i) => h('li', {}, dot(i), h('span', {}, `${step.name} ${format.micros(step.us)}`)));
  return [h('div', { class: 'steps' }, bar), h('ul', { class: 'legend' }, names)];
}

function decode(bytes) {
  const all = new TextDecoder().decode(bytes.slice(0, TEXT_MAX));
  return bytes.byteLength > TEXT_MAX ? `${all}\n… ${format.bytes(bytes.byteLength - TEXT_MAX)} more` : all;
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** A hex dump, sixteen bytes per line, with ASCII. */
function dump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, DUMP_BYTES); at += 16) {
    const row = Array.from(bytes.subarray(at, Math.min(at + 16, DUMP_BYTES)));
    const hex = row.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    const seen = row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : '.')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${seen}`);
  }
  if (bytes.length > DUMP_BYTES) lines.push(`… ${format.bytes(bytes.length - DUMP_BYTES)} more`);
  return lines.join('\n');
}
