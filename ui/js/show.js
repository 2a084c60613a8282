// How numbers and times are shown. Times are milliseconds since 1970; moments are acted on by
// their seqs, since a double does not hold nanoseconds.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(count) {
  let unit = 0;
  let value = count;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export const count = (number) => number.toLocaleString('en');
export const plural = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

/** Milliseconds of an RFC 3339 time, with its microseconds. */
export function ms(text) {
  const fraction = /\.(\d+)/.exec(text);
  const whole = Date.parse(text.replace(/\.\d+/, ''));
  return whole + (fraction ? Number(`0.${fraction[1]}`) * 1000 : 0);
}

/** RFC 3339 of milliseconds, as the API takes it. */
export function rfc(at) {
  const whole = Math.floor(at);
  const nanos = Math.floor((at - whole) * 1e6);
  return new Date(whole).toISOString().replace('Z', `${String(nanos).padStart(6, '0')}Z`);
}

let isUtc = localStorage.getItem('zone') !== 'local';
export const usesUtc = () => isUtc;
export function setUtc(on) {
  isUtc = on;
  localStorage.setItem('zone', on ? 'utc' : 'local');
}
export const zone = () =>
  isUtc ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone || 'local';

const two = (number) => String(number).padStart(2, '0');
const part = (date, name) => (isUtc ? date[`getUTC${name}`]() : date[`get${name}`]());

/** Hours and minutes, with seconds and milliseconds where `finest` is less than that. */
export function clock(at, finest = 1000) {
  const date = new Date(at);
  let text = `${two(part(date, 'Hours'))}:${two(part(date, 'Minutes'))}`;
  if (finest < 60_000) text += `:${two(part(date, 'Seconds'))}`;
  if (finest < 1000) text += `.${String(part(date, 'Milliseconds')).padStart(3, '0')}`;
  return text;
}

export function day(at) {
  const date = new Date(at);
  return `${part(date, 'FullYear')}-${two(part(date, 'Month') + 1)}-${two(part(date, 'Date'))}`;
}

export const when = (at, finest = 1000) => `${day(at)} ${clock(at, finest)}`;

/** A length of time in one unit. */
export function span(length) {
  const seconds = Math.abs(length) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(1)} d`;
}

const SPANS = {
  ms: 1, s: 1000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000, mo: 2_592_000_000,
};
/** Milliseconds of a span as the API writes it, such as `1d12h`. */
export const spanMs = (text) =>
  [...(text || '').matchAll(/(\d+)([a-z]+)/g)].reduce((sum, [, n, unit]) => sum + n * SPANS[unit], 0);

/** A text as one word of a shell. */
export const shellWord = (text) =>
  /^[\w.:@%+/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
