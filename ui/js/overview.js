// All volumes, shares and groups, each with a little of its line.
import { html, useEffect, useState } from './html.js';
import { Wait } from './controls.js';
import { useLive } from './live.js';
import { volumeLink } from './route.js';
import { bytes, ms, plural, span } from './show.js';
import * as api from './api.js';

/** Columns of a small line, and how often it is asked for, at most. */
const COLUMNS = 90;
const LINE_MS = 10_000;

export function Overview() {
  const { data, problem } = useLive(async (signal) => {
    const [volumes, shares, groups] = await Promise.all(
      ['/volumes', '/shares', '/groups'].map((path) => api.get(path, signal)));
    return { volumes, shares, groups };
  }, []);
  if (!data) return html`<${Wait} problem=${problem?.status ? problem : null} />`;
  const { volumes, shares, groups } = data;
  return html`<article>
    <header class="title"><h1 tabindex="-1">Volumes</h1></header>
    ${volumes.length + shares.length === 0 && html`<div class="empty">
      <p>There are no volumes yet. One is made by</p>
      <p><code>hindsight volume create pg --size 10GiB</code></p>
      <p>and a share, for files over NFS, by</p>
      <p><code>hindsight share create home</code></p>
    </div>`}
    <div class="cards">${volumes.map((volume) => html`<${Card} key=${volume.name} volume=${volume} />`)}</div>
    ${shares.length > 0 && html`<h2>Shares</h2>
      <div class="cards">${shares.map((share) => html`<${Card} key=${share.name} volume=${{ ...share, share: true }} />`)}</div>`}
    ${groups.length > 0 && html`<h2>Groups</h2><ul class="groups">${groups.map((group) => html`<li>
      <b>${group.name}</b>: ${group.volumes.map((name, index) => html`${index ? ', ' : ''}<a href=${volumeLink(name)}>${name}</a>`)},
      ${' '}captured ${plural(group.captures, 'time')}</li>`)}</ul>`}
  </article>`;
}

function Card({ volume }) {
  const bound = (text) => (volume.live_exact === false ? ` ${text}` : '');
  return html`<a class="card" href=${volumeLink(volume.name)}>
    <h2>${volume.name}<span class="dim">${volume.share ? 'share' : bytes(volume.size)}</span></h2>
    <${SmallLine} name=${volume.name} stamp=${volume.latest?.seq} />
    <p>${bytes(volume.live_bytes)}${bound('at most')} present, ${bytes(volume.history_bytes)}${bound('at least')} history</p>
    <p class="dim">Back ${span(api.now() - ms(volume.oldest.time))}${
      volume.clients === undefined ? '' : `, ${plural(volume.clients, 'client')}`}</p>
    ${volume.window_kept === false && html`<p class="warn">The window is not kept.</p>`}
    ${volume.state === 'refusing-writes' && html`<p class="warn">Refuses writes.</p>`}
  </a>`;
}

function SmallLine({ name, stamp }) {
  const [columns, setColumns] = useState([]);
  const turn = Math.floor(Date.now() / LINE_MS);
  useEffect(() => {
    const stop = new AbortController();
    api.get(api.withQuery(api.volumePath(name, '/timeline'), { points: COLUMNS }), stop.signal).then(
      (told) => setColumns(told.bytes), () => {});
    return () => stop.abort();
  }, [name, stamp === undefined ? 0 : `${stamp > 0} ${turn}`]);
  const most = Math.max(1, ...columns);
  const high = (written) => Math.max(1, Math.sqrt(written / most) * 20);
  return html`<svg class="small-line" viewBox=${`0 0 ${COLUMNS} 20`} preserveAspectRatio="none" aria-hidden="true">
    ${columns.map((written, x) => written > 0 && html`<rect x=${x} y=${20 - high(written)} width="0.9" height=${high(written)} />`)}
  </svg>`;
}
