// Formats numbers for display: three digits, a unit. Unknown values are a dash.

export const NONE = '–';

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return Math.round(value).toString();
  return value.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, '') || '0';
}

function scaled(value, base, units) {
  let i = 0;
  while (Math.abs(value) >= base * 0.9995 && i < units.length - 1) {
    value /= base;
    i += 1;
  }
  return [digits(value), units[i]];
}

const known = (value) => value != null && Number.isFinite(value);

/** A count: 1,234 and 12.3 k. */
export function count(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) < 10_000) return Math.round(value).toLocaleString('en');
  const [n, unit] = scaled(value, 1000, ['', 'k', 'M', 'G', 'T']);
  return `${n} ${unit}`;
}

/** A count per second, which may be a small fraction. */
export function rate(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) < 10_000) return Math.abs(value) >= 100 ? count(value) : digits(value);
  return count(value);
}

/** A duration given in microseconds. */
export function micros(value) {
  if (!known(value)) return NONE;
  if (value >= 60e6) return seconds(value / 1e6);
  const [n, unit] = scaled(value, 1000, ['µs', 'ms', 's']);
  return `${n} ${unit}`;
}

/** A duration given in seconds, in its two largest units. */
export function seconds(value) {
  if (!known(value)) return NONE;
  const s = Math.round(value);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** Device seconds, with small fractions. */
export function deviceSeconds(value) {
  if (!known(value)) return NONE;
  return value < 60 ? `${digits(value)} s` : seconds(value);
}

/** A fraction of one as a percentage. */
export function percent(value) {
  if (!known(value)) return NONE;
  const p = value * 100;
  return `${p > 0 && p < 10 ? digits(Math.max(p, 0.01)) : Math.round(p)} %`;
}

/** A size in bytes. */
export function bytes(value) {
  if (!known(value)) return NONE;
  const [n, unit] = scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
  return `${n} ${unit}`;
}

/** A time of day, of milliseconds since 1970. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}
