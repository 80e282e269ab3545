// Elements are created here and never from markup, so that names cannot inject markup.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Control characters, and those that change the direction of text: a name with one would change the
 * order of the text around it. Line breaks and tabs are kept.
 */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A text for display. */
export const shown = (value) => String(value).replace(UNSEEN, '\ufffd');

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, shown(value));
  }
  const there = children.flat().filter((child) => child != null);
  element.append(...there.map((child) => (child instanceof Node ? child : shown(child))));
  return element;
}

/** Creates an element; a function as an attribute's value listens to the event of that name. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets a text only if it differs, so that a selection in it is kept. */
export function text(element, value) {
  const wanted = shown(value);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Sets an element's tooltip. */
export function hint(element, value) {
  const wanted = shown(value ?? '');
  if (element.title !== wanted) element.title = wanted;
}

/** Adds or removes a class. */
export function mark(element, name, on) {
  element.classList.toggle(name, Boolean(on));
}

/**
 * Makes an element's children equal to those of a list, in its order, and reuses existing ones.
 * `make(item)` returns an object with an `element` and an `update(item)`.
 */
export class Keyed {
  constructor(parent, key, make) {
    Object.assign(this, { parent, key, make, parts: new Map() });
  }

  update(items) {
    const next = new Map();
    let place = this.parent.firstChild;
    for (const item of items) {
      const key = this.key(item);
      if (next.has(key)) continue;
      const part = this.parts.get(key) ?? this.make(item);
      next.set(key, part);
      if (part.element === place) place = place.nextSibling;
      else this.parent.insertBefore(part.element, place);
      part.update(item);
    }
    for (const [key, part] of this.parts) if (!next.has(key)) part.element.remove();
    this.parts = next;
  }
}

/** A link to a view: each part of the path is one encoded name. */
export function route(...names) {
  return '#/' + names.map(encodeURIComponent).join('/');
}
