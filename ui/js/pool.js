// The pool: its space and forecast, its devices, the scrub, and where the server listens.
import { html, useState } from './html.js';
import { Facts, SpaceBar, Table, Trouble, Wait } from './controls.js';
import { useLive } from './live.js';
import { bytes, count, ms, plural, span, when } from './show.js';
import * as api from './api.js';

/** The uses of a pool's space. What no volume has by itself stands under other. */
export function poolParts(pool) {
  const history = Math.max(0, pool.history_bytes - pool.pinned_bytes);
  const named = pool.live_bytes + history + pool.pinned_bytes;
  return [
    { name: 'live', label: 'present', bytes: Math.min(pool.live_bytes, pool.used_bytes) },
    { name: 'history', label: 'history', bytes: history },
    { name: 'pinned', label: 'pinned', bytes: pool.pinned_bytes },
    { name: 'other', label: 'maps, deleted, reclaimable', bytes: Math.max(0, pool.used_bytes - named) },
  ];
}
export const poolTotal = (pool) => pool.used_bytes + pool.available_bytes;

export function PoolPage({ server, note }) {
  const { data: pool, problem, again } = useLive((signal) => api.get('/pool', signal), []);
  const [refusal, setRefusal] = useState(null);
  if (!pool) return html`<${Wait} problem=${problem?.status ? problem : null} />`;
  const scrub = (call, text) => call().then(
    () => { setRefusal(null); note({ text }); again(); }, setRefusal);
  const isScrubbing = pool.scrub?.state === 'running';
  const next = pool.next_sacrifice;
  const bound = (text, exact) => (exact ? text : `${text} (a bound, until it is counted)`);
  return html`<article>
    <header class="title">
      <h1 tabindex="-1">Pool</h1><span class=${`chip ${pool.state}`}>${pool.state}</span>
      <span class="dim">${pool.layers}</span>
    </header>
    ${pool.state === 'refusing-writes' && html`<p class="warning" role="alert">A write or flush has failed: the pool
      refuses writes until the server is started again.</p>`}
    <section aria-label="Space">
      <h2>Space</h2>
      <${SpaceBar} parts=${poolParts(pool)} total=${poolTotal(pool)} label=${`${pool.fill_percent} % of the pool is used`} />
      <${Facts} rows=${[
        [html`<i class="use-live"></i>Present`, bound(bytes(pool.live_bytes), pool.live_exact)],
        [html`<i class="use-history"></i>History`, bound(bytes(pool.history_bytes), pool.live_exact)],
        [html`<i class="use-pinned"></i>of it pinned`, bytes(pool.pinned_bytes)],
        ['Reclaimable', bytes(pool.reclaimable_bytes)],
        ['Deleted, can be had back', `${plural(pool.trash_volumes, 'volume')}, ${bytes(pool.trash_bytes)}`],
        ['Available', `${bytes(pool.available_bytes)} (${pool.fill_percent} % used)`],
        ['Growth', pool.growth ? `${bytes(pool.growth.bytes_per_day)} a day, measured over ${pool.growth.measured}` : 'not known yet'],
        ['Full in', pool.full_in ?? 'not in sight'],
        ['Given up next', next ? next.scratch ? `${next.volume}, a scratch clone` : `history of ${next.volume} up to ${when(ms(next.to.time))}` : 'nothing'],
      ]} />
    </section>
    <section aria-label="Devices">
      <h2>Devices</h2>
      <${Table} caption="Files and disks" head=${['Path', 'State', 'Size', 'Errors', 'Read', 'Written']}
        rows=${pool.members.map((member) => [
          html`<code>${member.path}</code>`,
          html`<span class=${member.state === 'in' ? '' : 'warn'}>${member.state}${member.present ? '' : ', not there'}</span>`,
          bytes(member.size_bytes), count(member.errors), bytes(member.read_bytes), bytes(member.written_bytes)])}
        empty="One file or disk, without copies." />
      ${pool.behind_bytes > 0 && html`<p class="warn">${bytes(pool.behind_bytes)} are still to be copied.</p>`}
      <${Facts} rows=${[
        ['Wrong checksums', `${count(pool.checksum_errors)} since the server started`],
        ['Healed, lost', `${count(pool.healed.recovered)}, ${count(pool.healed.unrecoverable)}`],
      ]} />
    </section>
    <section aria-label="Scrub">
      <h2>Scrub</h2>
      <${Scrub} scrub=${pool.scrub} every=${pool.scrub_every} />
      <${Trouble} problem=${refusal} />
      <p class="acts">${isScrubbing
        ? html`<button type="button" ...${api.needs('admin')} onClick=${() => scrub(() => api.remove('/pool/scrub'), 'The scrub is stopped.')}>Stop</button>`
        : html`<button type="button" id="scrub" ...${api.needs('admin')} onClick=${() => scrub(() => api.post('/pool/scrub'), 'The scrub has begun.')}>Scrub now</button>`}</p>
    </section>
    ${server && html`<section aria-label="Server">
      <h2>Server</h2>
      <${Facts} rows=${[
        ['Version', server.version],
        ['Started', `${when(ms(server.started))}, ${span(api.now() - ms(server.started))} ago`],
        server.nbd_socket && ['NBD', html`<code>${server.nbd_socket}</code>`],
        server.nbd && ['NBD, TCP', html`<code>${server.nbd}</code>`],
        server.iscsi && ['iSCSI', html`<code>${server.iscsi}</code>`],
        ...server.nfs.map((address) => ['NFS', html`<code>${address}</code>`]),
        server.hooks.length > 0 && ['Hooks', server.hooks.join(', ')],
      ]} />
    </section>`}
  </article>`;
}

function Scrub({ scrub, every }) {
  const plan = every ? `One begins every ${every}.` : 'None begins by itself.';
  if (!scrub) return html`<p class="dim">Never. ${plan}</p>`;
  return html`<p>${scrub.state}, ${scrub.progress_percent} %, begun ${when(ms(scrub.started))}. ${plan}</p>
    ${scrub.state === 'running' && html`<progress max="100" value=${scrub.progress_percent} aria-label="Scrub"></progress>`}
    <p class=${scrub.lost > 0 ? 'warn' : 'dim'}>${bytes(scrub.read_bytes)} read, ${count(scrub.wrong)} wrong,
      ${' '}${count(scrub.healed)} healed, ${count(scrub.lost)} lost.</p>
    ${scrub.losses.length > 0 && html`<ul>${scrub.losses.map((text) => html`<li>${text}</li>`)}</ul>`}`;
}
