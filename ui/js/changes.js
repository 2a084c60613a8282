// What differs between two moments: a map of a volume, and the same as numbers; paths of a share.
import { html, useEffect, useRef, useState } from './html.js';
import { Table, Trouble, useWidth } from './controls.js';
import { useAnswer } from './live.js';
import { bytes, plural, when } from './show.js';
import * as api from './api.js';

const CELL = 10;
const ROWS = 14;
/** How often a present that moves is compared anew, at most. */
const CALM_MS = 4000;
/** How long both moments rest before they are compared: a slider passes many. */
const REST_MS = 120;
/** Paths that are shown at once. */
const PATHS_MAX = 200;

/**
 * The present as it was when it was last compared, while nothing but it moves: a comparison takes
 * seconds where much differs, and a twentieth of the time is enough for it.
 */
function useCalm(from, to, took) {
  const held = useRef(null);
  const before = held.current;
  const movesOnly = before && to.isNow && before.to.isNow && before.from?.seq === from?.seq;
  const rest = Math.max(CALM_MS, took.current * 20);
  if (!movesOnly || Date.now() - before.at > rest) held.current = { from, to, at: Date.now() };
  return held.current.to;
}

export function Changes({ volume, from, to: latest, hasBase }) {
  const took = useRef(0);
  const to = useCalm(from, latest, took);
  if (!from) return html`<p class="dim">Nothing is before the present to compare with: pick a moment.</p>`;
  const isSame = from.seq === to.seq;
  const [first, second] = from.seq <= to.seq ? [from, to] : [to, from];
  const name = (moment) => (moment.isNow ? 'now' : when(moment.at));
  const heading = html`<b>${hasBase ? 'A, ' : ''}${name(first)}</b> to <b>${name(second)}</b>`;
  if (isSame) return html`<p>${heading}: the same moment.</p>`;
  const View = volume.share ? Paths : Heat;
  return html`<${View} volume=${volume} from=${first} to=${second} heading=${heading} took=${took} />`;
}

/** Remembers how long it took. */
async function timed(took, ask) {
  const began = Date.now();
  const answer = await ask();
  took.current = Date.now() - began;
  return answer;
}

function Heat({ volume, from, to, heading, took }) {
  const box = useRef(null), canvas = useRef(null);
  const width = useWidth(box);
  const [over, setOver] = useState(null);
  const columns = Math.max(1, Math.floor(width / CELL));
  const { answer: heat, problem } = useAnswer(
    (signal) => (width ? timed(took, () => api.get(api.withQuery(api.volumePath(volume.name, '/heat'),
      { from: `seq:${from.seq}`, to: `seq:${to.seq}`, cells: Math.min(columns * ROWS, 16384) }), signal)) : new Promise(() => {})),
    [volume.name, from.seq, to.seq, columns], REST_MS);
  const rows = heat ? Math.ceil(heat.blocks.length / columns) : ROWS;
  useEffect(() => { if (heat && width) drawHeat(canvas.current, heat, columns, rows, width); });
  const place = (cell) => `${bytes(cell * heat.cell_bytes)} to ${bytes(Math.min((cell + 1) * heat.cell_bytes, volume.size))}`;
  const touched = (heat?.blocks || []).map((blocks, cell) => ({ blocks, cell })).filter((one) => one.blocks > 0);
  touched.sort((a, b) => b.blocks - a.blocks);
  const onPointerMove = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left) / CELL);
    const cell = column + Math.floor((event.clientY - bounds.top) / CELL) * columns;
    setOver(heat && column < columns && cell < heat.blocks.length ? cell : null);
  };
  const told = heat && `${bytes(heat.changed_bytes)} of ${bytes(volume.size)} differ, in ${touched.length} of ${heat.blocks.length} parts`;
  const differs = (cell) => (heat.blocks[cell] ? bytes(heat.blocks[cell] * heat.block_bytes) : 'nothing');
  return html`<div class="changes" ref=${box}>
    <p id="changed">${heading}: ${heat ? html`<b>${bytes(heat.changed_bytes)}</b> differ.` : problem ? '' : 'being compared.'}</p>
    <${Trouble} problem=${problem} />
    <canvas ref=${canvas} role="img" aria-label=${told ? `Map of the volume: ${told}` : 'Map of the volume'}
      style=${{ width: `${width}px`, height: `${rows * CELL}px` }} onPointerMove=${onPointerMove} onPointerLeave=${() => setOver(null)}></canvas>
    <p class="dim over">${heat && (over === null
      ? `Each square is ${bytes(heat.cell_bytes)} of the volume, from its beginning on; the darker, the more of it differs.`
      : `${place(over)}: ${differs(over)} differs`)}</p>
    ${touched.length > 0 && html`<details>
      <summary>The largest as a table</summary>
      <${Table} caption="Parts that differ most" head=${['Where', 'Differs']}
        rows=${touched.slice(0, 20).map(({ cell }) => [place(cell), differs(cell)])} />
    </details>`}
  </div>`;
}

function drawHeat(canvas, heat, columns, rows, width) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(rows * CELL * scale);
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(canvas);
  const [cold, hot] = ['cell', 'heat'].map((name) => style.getPropertyValue(`--${name}`).trim());
  const whole = heat.cell_bytes / heat.block_bytes;
  heat.blocks.forEach((blocks, cell) => {
    const [x, y] = [(cell % columns) * CELL, Math.floor(cell / columns) * CELL];
    pen.globalAlpha = 1;
    pen.fillStyle = cold;
    pen.fillRect(x, y, CELL - 1.5, CELL - 1.5);
    if (blocks === 0) return;
    pen.fillStyle = hot;
    pen.globalAlpha = 0.3 + 0.7 * Math.sqrt(blocks / whole);
    pen.fillRect(x, y, CELL - 1.5, CELL - 1.5);
  });
}

/** The paths of a share that differ. */
function Paths({ volume, from, to, heading, took }) {
  const { answer, problem } = useAnswer(
    (signal) => timed(took, () => api.page(api.withQuery(api.sharePath(volume.name, '/diff'),
      { from: `seq:${from.seq}`, to: `seq:${to.seq}`, limit: PATHS_MAX }), signal)),
    [volume.name, from.seq, to.seq], REST_MS);
  const paths = answer?.answer || [];
  const row = (one) => [one.change, html`<span dir="auto">${one.path_before ? `${one.path_before} to ${one.path}` : one.path}</span>`, one.kind];
  return html`<div class="changes">
    <p id="changed">${heading}: ${answer ? `${plural(paths.length, 'path')}${answer.next ? ' and more' : ''}.` : problem ? '' : 'being compared.'}</p>
    <${Trouble} problem=${problem} />
    ${answer && html`<${Table} caption="Paths that differ" head=${['Change', 'Path', 'Kind']} rows=${paths.map(row)} empty="No path differs." />`}
  </div>`;
}
