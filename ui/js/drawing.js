// The picture of a timeline on its canvas. It only draws what it is given: no state, no requests.
//
// From top to bottom: a lane of events, bytes written per column, a lane of flushes, the axis.
import { bytes, clock, day, plural } from './show.js';
import { lengthOf } from './view.js';

export const EVENT_LANE = 30;
const FLUSH_LANE = 10;
const AXIS = 20;
/** Events nearer than this, in pixels, are drawn as one with their number. */
const NEAR = 18;

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const TICKS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500,
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND), ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 7, 14, 28, 56, 112, 364].map((n) => n * DAY),
];

/** Pixels of a time, and the time of a pixel. */
export const xOf = (at, view, width) => ((at - view.begin) / lengthOf(view)) * width;
export const timeAt = (x, view, width) => view.begin + (x / width) * lengthOf(view);

/** Draws all of it: `told` is the server's columns, `picked` and `base` are moments or null. */
export function draw(canvas, { width, height, view, told, picked, base, pointer }) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(canvas);
  const colours = new Map();
  const colour = (name) => {
    if (!colours.has(name)) colours.set(name, style.getPropertyValue(`--${name}`).trim());
    return colours.get(name);
  };
  const area = { width, top: EVENT_LANE, bottom: height - AXIS - FLUSH_LANE, height };
  const x = (at) => xOf(at, view, width);
  const picture = { pen, colour, area, view, told, x };
  drawPast(picture);
  drawBand(picture, picked, base);
  drawAxis(picture);
  drawColumns(picture);
  drawReverts(picture);
  drawEvents(picture);
  if (pointer !== null) {
    pen.fillStyle = colour('dim');
    pen.fillRect(pointer, area.top, 1, area.bottom - area.top);
  }
}

/** Hatching where nothing can be opened any more, and its edge. */
function drawPast({ pen, colour, area, told, x }) {
  const edge = Math.min(x(told.oldestAt), area.width);
  if (edge <= 0) return;
  const bottom = area.bottom + FLUSH_LANE;
  pen.save();
  pen.beginPath();
  pen.rect(0, area.top, edge, bottom - area.top);
  pen.clip();
  pen.strokeStyle = colour('faint');
  pen.lineWidth = 1;
  for (let at = -area.height; at < edge; at += 7) {
    pen.beginPath();
    pen.moveTo(at, bottom);
    pen.lineTo(at + area.height, bottom - area.height);
    pen.stroke();
  }
  pen.restore();
  pen.fillStyle = colour('warn');
  pen.fillRect(edge - 1, area.top, 2, bottom - area.top);
}

/** What lies between the two moments that are compared. */
function drawBand({ pen, colour, area, x }, picked, base) {
  if (!picked || !base) return;
  const [left, right] = [x(Math.min(base.at, picked.at)), x(Math.max(base.at, picked.at))];
  pen.fillStyle = colour('band');
  pen.fillRect(left, area.top, right - left, area.bottom - area.top);
}

function drawAxis({ pen, colour, area, view, x }) {
  const least = lengthOf(view) / Math.max(2, area.width / 90);
  const tick = TICKS.find((length) => length >= least) || TICKS.at(-1);
  pen.font = '11px system-ui, sans-serif';
  pen.textAlign = 'center';
  pen.textBaseline = 'top';
  pen.lineWidth = 1;
  for (let at = Math.ceil(view.begin / tick) * tick; at < view.end; at += tick) {
    const place = Math.round(x(at)) + 0.5;
    pen.strokeStyle = colour('line');
    pen.beginPath();
    pen.moveTo(place, area.top);
    pen.lineTo(place, area.bottom + FLUSH_LANE);
    pen.stroke();
    pen.fillStyle = colour('dim');
    const text = tick >= DAY ? day(at).slice(5) : clock(at, tick);
    if (place > 30 && place < area.width - 30) pen.fillText(text, place, area.height - AXIS + 5);
  }
  pen.strokeStyle = colour('faint');
  pen.beginPath();
  pen.moveTo(0, area.bottom + 0.5);
  pen.lineTo(area.width, area.bottom + 0.5);
  pen.stroke();
}

/** Bytes and flushes. Heights are roots, so that a single write is seen beside a burst. */
function drawColumns({ pen, colour, area, told, x }) {
  const columns = told.bytes.length;
  const step = (told.untilAt - told.sinceAt) / columns;
  const wide = x(told.sinceAt + step) - x(told.sinceAt);
  const most = Math.max(1, ...told.bytes);
  const mostFlushes = Math.max(1, ...told.flushes);
  const areFew = told.seqs[columns] - told.seqs[0] <= columns / 6;
  const room = area.bottom - area.top - 4;
  for (let column = 0; column < columns; column += 1) {
    const left = x(told.sinceAt + column * step);
    if (left + wide < 0 || left > area.width) continue;
    if (told.seqs[column + 1] > told.seqs[column] || told.bytes[column] > 0) {
      const high = Math.max(2, Math.sqrt(told.bytes[column] / most) * room);
      pen.fillStyle = colour('bar');
      pen.fillRect(left, area.bottom - high, Math.max(1.5, wide - (wide > 3 ? 1 : 0)), high);
      if (areFew) drawStem(pen, left + wide / 2, area.bottom - high);
    }
    if (told.flushes[column] > 0) {
      pen.fillStyle = colour('flush');
      pen.globalAlpha = 0.4 + (0.6 * told.flushes[column]) / mostFlushes;
      pen.fillRect(left, area.bottom + 3, Math.max(1.5, wide), FLUSH_LANE - 5);
      pen.globalAlpha = 1;
    }
  }
}

/** The head of a stem: few enough writes to be told apart. */
function drawStem(pen, x, y) {
  pen.beginPath();
  pen.arc(x, y, 3, 0, 2 * Math.PI);
  pen.fill();
}

/** Events in groups of neighbours: binned from the first on, so that chains do not grow into one. */
export function grouped(events, view, width) {
  const groups = [];
  let last = null;
  for (const event of events) {
    const x = xOf(event.at, view, width);
    if (x < -NEAR || x > width + NEAR) continue;
    // Versions of a volume that is not written are one moment.
    const isSame = last && last.events.at(-1).seq === event.seq && event.kind === 'version';
    if (last && (x - last.x < NEAR || isSame)) last.events.push(event);
    else groups.push(last = { x, events: [event] });
  }
  return groups;
}

const COLOURS = { version: 'version', mark: 'mark', revert: 'revert' };
export const labelOf = (event) => {
  if (event.detail === '') return event.number === 1 ? event.kind : plural(event.number, event.kind);
  if (event.kind === 'version') return `v:${event.detail}`;
  return event.kind === 'mark' ? event.detail : event.kind;
};

function drawEvents({ pen, colour, area, view, told }) {
  const groups = grouped(told.events, view, area.width);
  groups.forEach((group, index) => {
    // Every volume has a beginning: what else is there has the place.
    const others = group.events.filter((event) => event.kind !== 'created');
    const events = others.length > 0 ? others : group.events;
    const shown = events.find((event) => event.kind === 'revert') || events.at(-1);
    const x = Math.min(Math.max(group.x, 10), area.width - 10);
    const y = 14;
    pen.fillStyle = colour(COLOURS[shown.kind] || 'dim');
    pen.strokeStyle = pen.fillStyle;
    pen.globalAlpha = 0.45;
    pen.fillRect(x - 0.5, y + 8, 1, area.bottom - y - 8);
    pen.globalAlpha = 1;
    const number = events.reduce((sum, event) => sum + event.number, 0);
    const isOne = number === 1 || (shown.detail !== '' && events.every((event) => event.seq === shown.seq && event.kind === shown.kind));
    if (isOne) drawGlyph(pen, shown.kind, x, y);
    else drawNumber(pen, colour, number, x, y);
    const next = groups[index + 1]?.x ?? area.width;
    if (isOne && shown.kind !== 'created') drawLabel(pen, colour, labelOf(shown), x + 11, y, next - x - 26);
  });
}

function drawGlyph(pen, kind, x, y) {
  pen.save();
  pen.translate(x, y);
  pen.lineWidth = 2;
  pen.beginPath();
  if (kind === 'version') pen.rect(-5, -5, 10, 10);
  else if (kind === 'mark') [[0, -7], [7, 0], [0, 7], [-7, 0]].forEach(([px, py]) => pen.lineTo(px, py));
  else if (kind === 'revert') [[-7, 0], [3, -7], [3, 7]].forEach(([px, py]) => pen.lineTo(px, py));
  else pen.arc(0, 0, 4, 0, 2 * Math.PI);
  pen.fill();
  pen.restore();
}

function drawNumber(pen, colour, number, x, y) {
  pen.beginPath();
  pen.arc(x, y, 9, 0, 2 * Math.PI);
  pen.fill();
  pen.fillStyle = colour('paper');
  pen.font = `bold ${number > 99 ? 8 : 10}px system-ui, sans-serif`;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  pen.fillText(number > 99 ? '99+' : number, x, y + 0.5);
}

function drawLabel(pen, colour, text, x, y, room) {
  if (room < 24) return;
  pen.font = '11px system-ui, sans-serif';
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  pen.fillStyle = colour('dim');
  let shown = text;
  while (shown.length > 2 && pen.measureText(shown).width > Math.min(140, room)) {
    shown = `${shown.slice(0, -2)}\u2026`;
  }
  pen.fillText(shown, x, y);
}

/** An arc from a revert to the moment that it went back to. */
function drawReverts({ pen, colour, area, told, x }) {
  const step = (told.untilAt - told.sinceAt) / told.bytes.length;
  for (const event of told.events) {
    const target = event.kind === 'revert' && /to seq (\d+)/.exec(event.detail);
    if (!target || Number(target[1]) < told.seqs[0]) continue;
    const edge = told.seqs.findIndex((seq) => seq >= Number(target[1]));
    if (edge < 0) continue;
    const [left, right] = [x(told.sinceAt + edge * step), x(event.at)];
    if (right < 0 || left > area.width) continue;
    pen.strokeStyle = colour('revert');
    pen.lineWidth = 1.5;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(right, 22);
    pen.bezierCurveTo(right, area.top + 24, left, area.top + 24, left, area.top);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** The height of the tallest column, as a rate. */
export function peak(told) {
  const seconds = (told.untilAt - told.sinceAt) / told.bytes.length / 1000;
  return seconds > 0 ? `${bytes(Math.max(0, ...told.bytes) / seconds)}/s` : '';
}
