// The shell: where one is, whether the server answers, what is to be told.
import { html, render, useEffect, useRef, useState } from './html.js';
import { SpaceBar, Trouble } from './controls.js';
import { AuditPage } from './audit.js';
import { JobsPage } from './jobs.js';
import { Overview } from './overview.js';
import { PoolPage, poolParts, poolTotal } from './pool.js';
import { SchedulesPage } from './schedules.js';
import { VolumePage } from './volume.js';
import { useLive } from './live.js';
import { useRoute } from './route.js';
import { clock, ms, setUtc, span, usesUtc, zone } from './show.js';
import * as api from './api.js';

const PAGES = [
  ['overview', '#/', 'Volumes'], ['pool', '#/pool', 'Pool'], ['jobs', '#/jobs', 'Jobs'],
  ['schedules', '#/schedules', 'Schedules'], ['audit', '#/audit', 'Audit log'],
];
/** How long a note stays: with something to press, and without. */
const NOTE_MS = 6000;
const ACTION_MS = 20_000;
/** A difference of clocks that is said. */
const AHEAD_MS = 5000;

/** The server, and its clock: half of the way is taken off. */
async function askServer(signal) {
  const sent = Date.now();
  const server = await api.get('/server', signal);
  const received = Date.now();
  api.setWho(server.who);
  api.setAhead(ms(server.time) - (sent + received) / 2);
  return server;
}

function useNotes() {
  const [notes, setNotes] = useState([]);
  const last = useRef(0);
  const drop = (id) => setNotes((all) => all.filter((one) => one.id !== id));
  const note = (one) => {
    const id = last.current += 1;
    setNotes((all) => [...all, { ...one, id }]);
    setTimeout(() => drop(id), one.action ? ACTION_MS : NOTE_MS);
  };
  const act = (one) => {
    drop(one.id);
    one.run().catch((problem) => note({ text: `${problem.message} ${problem.hint ?? ''}` }));
  };
  return { notes, note, act };
}

/** Since when the server has not answered; null while it does. */
function useSilence() {
  const [since, setSince] = useState(null);
  useEffect(() => api.hearContact((isThere) => setSince((before) => (isThere ? null : before ?? Date.now()))), []);
  return since;
}

function App() {
  const route = useRoute();
  const { data: server, problem } = useLive(askServer, []);
  const { data: pool } = useLive((signal) => api.get('/pool', signal), []);
  const { notes, note, act } = useNotes();
  const silentSince = useSilence();
  const [, redraw] = useState(0);
  const [theme, setTheme] = useState(localStorage.getItem('theme') || '');
  const firstVersion = useRef(null);
  firstVersion.current ??= server?.version ?? null;
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem('theme', theme);
  }, [theme]);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = route.name ? `${route.name}, Hindsight` : 'Hindsight';
    if (!isFirst.current) document.getElementById('main').focus();
    isFirst.current = false;
  }, [route.page, route.name]);
  if (refused || api.isOut() || problem?.kind === 'unauthorized') return html`<${Login} />`;
  const page = PAGES.some(([id]) => id === route.page) || route.page === 'v' ? route.page : 'overview';
  const views = {
    overview: () => html`<${Overview} />`,
    v: () => html`<${VolumePage} key=${route.name} name=${route.name} note=${note} />`,
    pool: () => html`<${PoolPage} server=${server} note=${note} />`,
    jobs: () => html`<${JobsPage} />`,
    schedules: () => html`<${SchedulesPage} note=${note} />`,
    audit: () => html`<${AuditPage} />`,
  };
  const leave = () => api.leave().then(() => location.reload(), (trouble) => {
    refused = { message: 'The server did not hear of it: the token is good until it expires.', hint: trouble.message };
    redraw((turn) => turn + 1);
  });
  const toContent = (event) => { event.preventDefault(); document.getElementById('main').focus(); };
  const nextTheme = { '': 'dark', dark: 'light', light: '' };
  return html`
    <a class="skip" href="#main" onClick=${toContent}>To the content</a>
    <header class="top">
      <a class="logo" href="#/"><img src="/icon.svg" alt="" width="22" height="22" />Hindsight</a>
      ${pool && html`<a class="fill" href="#/pool">
        <${SpaceBar} parts=${poolParts(pool)} total=${poolTotal(pool)} label=${`${pool.fill_percent} % of the pool is used`} />
        <span>${pool.fill_percent} % used</span></a>`}
      ${server?.who && html`<span class="who" id="who" title=${server.who.name}>${server.who.role}${
        server.who.volumes.length ? ` of ${server.who.volumes.join(' ')}` : ''}, ${server.who.name}</span>`}
      <span class=${silentSince ? 'contact off' : 'contact'} role="status" id="contact">${silentSince ? 'no connection' : 'live'}</span>
      ${api.hasToken() && html`<button type="button" id="leave" title="This tab is nobody then; a token that the page was entered with ends"
        onClick=${leave}>leave</button>`}
      <button type="button" title="Zone in which times are shown" aria-label=${`Times in ${zone()}; change`}
        onClick=${() => { setUtc(!usesUtc()); redraw((turn) => turn + 1); }}>${zone()}</button>
      <button type="button" title="Colours" aria-label=${`Colours: ${theme || 'auto'}; change`}
        onClick=${() => setTheme(nextTheme[theme])}>${theme || 'auto'}</button>
    </header>
    <nav aria-label="Views"><ul>${PAGES.map(([id, link, name]) => html`<li><a href=${link}
      aria-current=${page === id || (page === 'v' && id === 'overview') ? 'page' : null}>${name}</a></li>`)}</ul></nav>
    <main id="main" tabindex="-1" class=${silentSince ? 'stale' : ''}>
      <${Warnings} silentSince=${silentSince} server=${server} pool=${pool} first=${firstVersion.current} />
      ${views[page]()}
    </main>
    <div class="notes" role="status" aria-live="polite">${notes.map((one) => html`<div class="note" key=${one.id}>
      <span>${one.text}</span>
      ${one.action && html`<button type="button" onClick=${() => act(one)}>${one.action}</button>`}</div>`)}</div>`;
}

/** What is to be known wherever one is. */
function Warnings({ silentSince, server, pool, first }) {
  const ahead = api.clockAhead();
  return html`
    ${silentSince && html`<p class="warning" role="alert">The server does not answer. What is shown is of
      ${' '}${clock(silentSince)} and may not be true any more.</p>`}
    ${server && first && server.version !== first && html`<p class="warning" role="alert">The server is another version now.
      ${' '}<button type="button" onClick=${() => location.reload()}>Reload</button></p>`}
    ${pool?.warning && html`<p class="warning" role="alert">${pool.warning}</p>`}
    ${Math.abs(ahead) > AHEAD_MS && html`<p class="warning">The server's clock is ${span(ahead)} ${ahead > 0 ? 'ahead of' : 'behind'}
      this browser's. Times and ages are the server's.</p>`}`;
}

/** Asks for the token, where the address had none or another. */
function Login() {
  useEffect(() => document.getElementById('main').focus(), []);
  const [token, setToken] = useState('');
  const submit = (event) => {
    event.preventDefault();
    api.keepToken(token);
    // A code that nobody could be asked about is not tried any more.
    if (location.hash.startsWith('#enter=')) history.replaceState(null, '', location.pathname);
    location.reload();
  };
  return html`<main id="main" class="login" tabindex="-1">
    <h1>Hindsight</h1>
    <p>This server asks for its token. <code>hindsight serve</code> prints an address that has it; it is kept in
      ${' '}<code>DIR/token</code> of the pool. <code>hindsight page --role viewer</code> prints one that lets in once, and may
      less. This tab forgets it when it is closed.</p>
    <form onSubmit=${submit} class="ask">
      <label class="field">Token
        <input type="password" id="token" value=${token} required autocomplete="off" onInput=${(event) => setToken(event.target.value)} />
      </label>
      <button class="primary">Go on</button>
    </form>
    <${Trouble} problem=${refused ?? (api.hadWrongToken() ? { message: 'The token that this tab had is not the server\u2019s, or is good no longer.' } : null)} />
  </main>`;
}

/** Why this tab is nobody, if there is something to say of it. */
let refused = await api.enter().then(() => null, (problem) => problem);
// An address that lets in, opened where the page is: the tab is somebody else from then on.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#enter=')) location.reload();
});
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
