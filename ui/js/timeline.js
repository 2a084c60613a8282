// The timeline of a volume: what was written when, what happened, and the moment that is picked.
//
// 1. What is known is drawn at once; what is not is asked for, and drawn when it comes.
// 2. One picture is one request of as many points as it has columns, however long the history is.
// 3. The picked moment is a slider to assistive technology, and moves by keys alone.
// 4. While it follows the present a new one moves the edge, and nothing else.
import { html, useEffect, useRef, useState } from './html.js';
import { Trouble, useWidth } from './controls.js';
import { EVENT_LANE, draw, grouped, labelOf, peak, timeAt, xOf } from './drawing.js';
import { bytes, clock, count, ms, plural, rfc, span, when } from './show.js';
import { around, clamp, endingAt, isWhole, lengthOf, panned, wholeOf, within, zoomed } from './view.js';
import * as api from './api.js';

/** How long the view rests before it is asked for, and how often the present is. */
const REST_MS = 90;
const FOLLOW_MS = 2000;
const QUICK = [['1 min', 60_000], ['10 min', 600_000], ['1 h', 3_600_000], ['24 h', 86_400_000]];

/** The server's answer with its times as numbers. */
function read(told) {
  const [sinceAt, untilAt] = [ms(told.since), ms(told.until)];
  const step = (untilAt - sinceAt) / told.bytes.length;
  // Those that are only counted are at the ends of their columns, without a name.
  const counted = told.event_counts.map(({ column, kind, count: number }) =>
    ({ kind, number, at: sinceAt + (column + 1) * step, seq: told.seqs[column + 1], detail: '' }));
  const events = told.events?.map((event) => ({ ...event, number: 1, at: ms(event.time) }));
  return {
    ...told,
    sinceAt,
    untilAt,
    oldestAt: ms(told.oldest.time),
    latestAt: ms(told.latest.time),
    events: events ?? counted,
    areCounted: told.events === null,
  };
}

/** A view that follows the present, or stands where the address says. */
function firstView({ since, until }) {
  const [begin, end] = [since, until].map((text) => (text ? ms(text) : NaN));
  return begin < end ? { begin, end } : null;
}

export function Timeline({ name, picked, base, stamp, shown, onPick, onTold, onView, onKey }) {
  const box = useRef(null), canvas = useRef(null), handle = useRef(null);
  const width = useWidth(box);
  const height = width < 520 ? 170 : 210;
  const [, redraw] = useState(0);
  const [problem, setProblem] = useState(null);
  const line = useRef({ view: firstView(shown), whole: null, told: null, pointer: null });
  const state = line.current;
  state.follows ??= state.view === null;
  const again = () => redraw((turn) => turn + 1);

  const asking = useRef(new AbortController());
  const ask = async () => {
    if (!width) return;
    asking.current.abort();
    const mine = asking.current = new AbortController();
    const fields = { points: clamp(Math.floor(width / 2), 50, 2000), until: rfc(api.now()) };
    if (state.view && state.whole) fields.since = rfc(Math.max(state.view.begin, 0));
    if (state.view && !state.follows) Object.assign(fields, { since: rfc(state.view.begin), until: rfc(state.view.end) });
    try {
      const path = api.withQuery(api.volumePath(name, '/timeline'), fields);
      take(read(await api.get(path, mine.signal)));
      setProblem(null);
    } catch (error) {
      if (!mine.signal.aborted) setProblem(error);
    }
  };
  const take = (told) => {
    state.told = told;
    const whole = wholeOf(told.oldestAt, Math.max(api.now(), told.latestAt));
    const showedAll = state.view && state.whole && isWhole(state.view, state.whole);
    if (!state.view || (state.follows && showedAll)) state.view = whole;
    else if (state.follows) state.view = within(endingAt(state.view, whole.end), whole);
    else state.view = within(state.view, whole);
    state.whole = whole;
    performance.mark('timeline-told');
    onTold(told);
    again();
  };
  const askSoon = () => {
    clearTimeout(state.timer);
    state.timer = setTimeout(ask, REST_MS);
  };
  useEffect(() => {
    ask();
    const timer = setInterval(() => { if (!document.hidden && state.follows) ask(); }, FOLLOW_MS);
    return () => { clearInterval(timer); clearTimeout(state.timer); asking.current.abort(); };
  }, [name, width, stamp]);

  const see = (view, follows) => {
    state.view = view;
    state.follows = follows ?? view.end >= state.whole.end - 1;
    onView(isWhole(view, state.whole) && state.follows ? null : view);
    again();
    askSoon();
  };
  const seeLast = (length) => see(endingAt({ begin: 0, end: length }, state.whole.end), true);
  const seeAll = () => see(state.whole, true);
  const zoom = (factor, at) => state.view && see(zoomed(state.view, state.whole, factor, at ?? clamp(picked?.at ?? 0, state.view.begin, state.view.end)));

  const pickAt = (at) => {
    if (at >= state.told.latestAt) onPick('latest');
    else if (at <= state.told.oldestAt) onPick(`seq:${state.told.oldest.seq}`);
    else onPick(rfc(at));
  };
  useEffect(() => {
    if (!picked || !state.view || picked.isNow) return;
    const isSeen = picked.at >= state.view.begin && picked.at <= state.view.end;
    if (!isSeen) see(around(state.view, state.whole, picked.at));
  }, [picked?.seq]);

  useEffect(() => {
    if (!width || !state.view || !state.told) return;
    draw(canvas.current, { width, height, view: state.view, told: state.told, picked, base, pointer: state.pointer });
    performance.mark('timeline-drawn');
  });

  const onSliderKey = (event) => {
    if (!state.told || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = picked.isNow ? state.told.latestAt : picked.at;
    const column = (lengthOf(state.view) / width) * 2 * (event.shiftKey ? 20 : 1);
    const others = state.told.events.filter((one) => one.seq !== picked.seq);
    const pick = (one) => one && onPick(`seq:${one.seq}`);
    const keys = {
      ArrowLeft: () => pickAt(Math.min(at, state.view.end) - column),
      ArrowRight: () => pickAt(at + column),
      ArrowDown: () => pickAt(at - column),
      ArrowUp: () => pickAt(at + column),
      PageUp: () => pick(others.filter((one) => one.seq < picked.seq).at(-1)),
      PageDown: () => pick(others.find((one) => one.seq > picked.seq)),
      '[': () => onPick(`seq:${Math.max(state.told.oldest.seq, picked.seq - 1)}`),
      ']': () => onPick(picked.seq + 1 >= state.told.latest.seq ? 'latest' : `seq:${picked.seq + 1}`),
      Home: () => onPick(`seq:${state.told.oldest.seq}`),
      End: () => onPick('latest'),
      '+': () => zoom(0.5),
      '=': () => zoom(0.5),
      '-': () => zoom(2),
      0: seeAll,
    };
    if (!keys[event.key]) { onKey(event); return; }
    event.preventDefault();
    keys[event.key]();
  };

  const pointers = usePointers({ canvas, state, width, again, zoom, pickAt, onPick, see, focus: () => handle.current?.focus() });
  const length = state.view ? lengthOf(state.view) : 0;
  const finest = length < 2000 ? 1 : 1000;
  const place = picked && state.view ? clamp(xOf(picked.isNow ? state.whole.end : picked.at, state.view, width), 0, width) : null;
  const isBaseSeen = base && state.view && base.at >= state.view.begin && base.at <= state.view.end;
  const isQuick = (wanted) => state.follows && Math.abs(length - wanted) < wanted / 50;
  const spoken = picked && `${picked.isNow ? 'the present, ' : ''}${when(picked.at, 1)}, seq ${picked.seq}`;
  return html`<section class="timeline" aria-label=${`Timeline of ${name}`}>
    <div class="line-bar">
      <div class="zooms" role="group" aria-label="Show">
        ${QUICK.map(([text, wanted]) => html`<button type="button" onClick=${() => seeLast(wanted)}
          disabled=${!state.whole || lengthOf(state.whole) < wanted}
          aria-pressed=${isQuick(wanted) ? 'true' : 'false'}>${text}</button>`)}
        <button type="button" onClick=${seeAll} disabled=${!state.whole}
          aria-pressed=${state.view && isWhole(state.view, state.whole) ? 'true' : 'false'}>All</button>
        <button type="button" aria-label="Zoom in" onClick=${() => zoom(0.5)}>+</button>
        <button type="button" aria-label="Zoom out" onClick=${() => zoom(2)}>${'\u2212'}</button>
      </div>
      <p class="range">${state.view && state.told ? html`${when(state.view.begin, finest)} ${'\u2013'} ${clock(state.view.end, finest)}
        <span class="dim"> (${span(length)}, peak ${peak(state.told)})</span>` : 'Loading'}</p>
    </div>
    <${Trouble} problem=${problem?.status ? problem : null} />
    <div class="line-box" ref=${box} style=${{ height: `${height}px` }}>
      <canvas ref=${canvas} style=${{ width: `${width}px`, height: `${height}px` }} aria-hidden="true" ...${pointers.handlers}></canvas>
      ${place !== null && html`<div class="handle" ref=${handle} tabindex="0" role="slider" id="slider"
        aria-label="Picked moment" aria-orientation="horizontal" aria-describedby="line-keys"
        aria-valuemin=${Math.round(state.told?.oldestAt ?? 0)} aria-valuemax=${Math.round(state.whole?.end ?? 0)}
        aria-valuenow=${Math.round(picked.at)} aria-valuetext=${spoken}
        onKeyDown=${onSliderKey} style=${{ left: `${place}px` }}><b></b></div>`}
      ${isBaseSeen && html`<div class="line-base" aria-hidden="true"
        style=${{ left: `${xOf(base.at, state.view, width)}px` }}><b>A</b></div>`}
      <${Tip} state=${state} width=${width} finest=${finest} />
    </div>
    <p class="legend" aria-hidden="true">
      <i class="key-written"></i>written <i class="key-flush"></i>flushed <i class="key-version"></i>version
      ${' '}<i class="key-mark"></i>mark <i class="key-revert"></i>revert <i class="key-gone"></i>cannot be opened
    </p>
    <p id="line-keys" class="line-keys dim">Arrow keys move the moment, Page Up and Page Down go from
      event to event, <kbd>?</kbd> lists all keys.</p>
  </section>`;
}

/** What is under the pointer: an event, or a column. */
function Tip({ state, width, finest }) {
  const { pointer, told, view } = state;
  if (pointer === null || !told || !view) return null;
  const columns = told.bytes.length;
  const at = timeAt(pointer, view, width);
  const column = Math.floor(((at - told.sinceAt) / (told.untilAt - told.sinceAt)) * columns);
  const isTold = column >= 0 && column < columns;
  const group = state.inLane && grouped(told.events, view, width).find((one) => Math.abs(one.x - pointer) < 10);
  if (!isTold && !group) return null;
  const lines = group
    ? group.events.slice(-4).map((event) => `${labelOf(event)}, ${when(event.at)}`)
    : [when(at, finest), `${plural(told.seqs[column + 1] - told.seqs[column], 'write')}, ${bytes(told.bytes[column])}${
      told.flushes[column] ? `, ${count(told.flushes[column])} flushed` : ''}`];
  return html`<div class="tip" aria-hidden="true" style=${{ left: `${clamp(pointer, 90, Math.max(90, width - 90))}px` }}>
    ${lines.map((text) => html`<div>${text}</div>`)}
  </div>`;
}

/** Picking, dragging, pinching and the wheel. */
function usePointers({ canvas, state, width, again, zoom, pickAt, onPick, see, focus }) {
  const gesture = useRef({ down: new Map(), begun: null });
  const { down } = gesture.current;
  const place = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const apart = () => {
    const [one, other] = [...down.values()];
    return { distance: Math.max(20, Math.abs(one.x - other.x)), middle: (one.x + other.x) / 2 };
  };
  const onPointerDown = (event) => {
    canvas.current.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    gesture.current.begun = { x: place(event).x, view: state.view, moved: false, pinch: down.size === 2 ? apart() : null };
  };
  const onPointerMove = (event) => {
    if (!state.view) return;
    const { x, y } = place(event);
    Object.assign(state, { pointer: event.pointerType === 'touch' ? null : x, inLane: y < EVENT_LANE });
    const { begun } = gesture.current;
    if (begun && down.has(event.pointerId)) {
      down.set(event.pointerId, { x, y });
      if (begun.pinch && down.size === 2) {
        const pinch = apart();
        zoom(begun.pinch.distance / pinch.distance, timeAt(pinch.middle, state.view, width));
        Object.assign(begun, { pinch, moved: true });
        return;
      }
      begun.moved ||= Math.abs(x - begun.x) > 4;
      if (begun.moved) see(panned(begun.view, state.whole, -((x - begun.x) / width) * lengthOf(begun.view)));
    }
    again();
  };
  const onPointerUp = (event) => {
    const { begun } = gesture.current;
    down.delete(event.pointerId);
    gesture.current.begun = null;
    if (!begun || begun.moved || !state.told || event.type !== 'pointerup') return;
    const { x, y } = place(event);
    const groups = y < EVENT_LANE ? grouped(state.told.events, state.view, width) : [];
    const group = groups.find((one) => Math.abs(one.x - x) < 12);
    if (group) onPick(`seq:${group.events.at(-1).seq}`);
    else pickAt(timeAt(x, state.view, width));
    focus();
  };
  const onWheel = (event) => {
    if (!state.view) return;
    event.preventDefault();
    const isAside = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (isAside) see(panned(state.view, state.whole, (event.deltaX / width) * lengthOf(state.view)));
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(place(event).x, state.view, width));
  };
  useEffect(() => {
    const element = canvas.current;
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => element.removeEventListener('wheel', onWheel);
  });
  const onPointerLeave = () => { state.pointer = null; again(); };
  return { handlers: { onPointerDown, onPointerMove, onPointerUp, onPointerCancel: onPointerUp, onPointerLeave } };
}
