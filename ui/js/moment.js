// The picked moment: which it is, how long it stays, how it is opened, and what can be done from it.
import { html, useEffect, useState } from './html.js';
import { Copy, Trouble } from './controls.js';
import { count, ms, span, spanMs, when } from './show.js';
import * as api from './api.js';

/** Puts a moment behind the name in a URI: `nbd://host/pg?x` to `nbd://host/pg@seq:5?x`. */
const atMoment = (uri, moment) => uri.replace(/\/([^/?]+)(\?|$)/, `/$1@${moment}$2`);

/** How a moment is opened: labels and texts. They name the seq, and so stay what they are. */
export function addresses(volume, picked) {
  const moment = picked.isNow ? null : `seq:${picked.seq}`;
  const place = (uri) => (moment ? atMoment(uri, moment) : uri);
  const name = moment ? `${volume.name}@${moment}` : volume.name;
  if (volume.share) {
    const mounted = (volume.mount || []).map((command) => command.replace(`:/${volume.name} `, `:/${name} `));
    const inside = moment ? [['in the share', `.hindsight/${moment}`]] : [];
    return [...inside, ...mounted.map((command) => ['mount', command]), ['name', name]];
  }
  const all = [];
  if (volume.nbd_uri) all.push(['NBD', place(volume.nbd_uri)]);
  if (volume.nbd_tcp_uri && volume.nbd_tcp_uri !== volume.nbd_uri) all.push(['NBD TCP', place(volume.nbd_tcp_uri)]);
  if (volume.iscsi_uri) all.push(['iSCSI', moment ? volume.iscsi_uri.replace(/\/0$/, `:at:${moment}/0`) : volume.iscsi_uri]);
  all.push(['name', name]);
  return all;
}

export function Moment({ volume, picked, base, refusal, events, onPick, onOpen, onCompare }) {
  const [text, setText] = useState('');
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) onPick(text.trim());
  };
  const marks = (events || []).filter((event) => event.kind === 'mark' && event.detail !== '').slice(-20);
  return html`<section class="moment" aria-label="Picked moment">
    <h2>Moment</h2>
    <form class="ask" onSubmit=${submit}>
      <label class="hidden" for="moment-text">Moment</label>
      <input id="moment-text" list="moments" value=${text} autocomplete="off" spellcheck=${false}
        placeholder="-5min, v:3, mark:x, 2026-11-23T14:00:00Z" onInput=${(event) => setText(event.target.value)} />
      <datalist id="moments">
        ${['latest', '-5min', '-1h', ...marks.map((mark) => `mark:${mark.detail}`)].map((one) => html`<option value=${one} />`)}
      </datalist>
      <button>Go</button>
    </form>
    <${Trouble} problem=${refusal}>
      ${refusal?.oldest && html`<p class="acts">
        <button type="button" onClick=${() => onPick(`seq:${refusal.oldest.seq}`)}>Oldest: ${when(ms(refusal.oldest.time))}</button>
        <button type="button" onClick=${() => onPick('latest')}>Latest: ${when(ms(refusal.latest.time))}</button>
      </p>`}
    </${Trouble}>
    <div aria-live="polite" id="picked">
      <p class="big">${when(picked.at, 1)}</p>
      <p class="dim">seq ${count(picked.seq)}, ${picked.isNow ? 'the present' : `${span(api.now() - picked.at)} ago`}</p>
      <${Kept} volume=${volume} picked=${picked} events=${events} />
    </div>
    ${addresses(volume, picked).map(([label, address]) => html`<${Copy} label=${label} text=${address} />`)}
    <div class="acts">
      <button type="button" class="primary" id="revert" disabled=${picked.isNow} ...${api.needs('operator')} onClick=${() => onOpen('revert')}>Revert to here</button>
      <button type="button" id="clone" ...${api.needs('operator')} onClick=${() => onOpen('clone')}>Clone</button>
      <button type="button" id="mark" ...${api.needs('keeper')} onClick=${() => onOpen('mark')}>Mark</button>
      <button type="button" id="pin" ...${api.needs('keeper')} onClick=${() => onOpen('pin')}>Pin</button>
      ${picked.isNow && html`<button type="button" id="version" ...${api.needs('keeper')} onClick=${() => onOpen('version')}>Version now</button>`}
      <button type="button" id="compare" onClick=${() => onCompare(picked)}>${base ? 'Move A here' : 'Compare from here'}</button>
      ${base && html`<button type="button" onClick=${() => onCompare(null)}>Clear A</button>`}
      ${!picked.isNow && html`<button type="button" onClick=${() => onPick('latest')}>To the present</button>`}
    </div>
  </section>`;
}

/** Whether it is exact and consistent, and until when it can be opened. */
function Kept({ volume, picked, events }) {
  const [version, setVersion] = useState(null);
  const [pinnedMark, setPinnedMark] = useState(null);
  const numbers = (events || []).filter((event) => event.kind === 'version' && event.detail !== '' && event.seq <= picked.seq);
  const number = numbers.at(-1)?.detail.split(' ')[0];
  const hasMark = (events || []).some((event) => event.kind === 'mark' && event.seq === picked.seq);
  useEffect(() => {
    setVersion(null);
    if (number !== undefined) api.get(api.volumePath(volume.name, `/versions/${number}`)).then(setVersion, () => {});
  }, [volume.name, number]);
  useEffect(() => {
    setPinnedMark(null);
    if (!hasMark) return;
    api.get(api.volumePath(volume.name, '/marks')).then(
      (marks) => setPinnedMark(marks.find((mark) => mark.pinned && mark.seq === picked.seq)?.name ?? null), () => {});
  }, [volume.name, picked.seq, hasMark]);
  const isVersion = version?.seq === picked.seq;
  const leaves = picked.at + spanMs(volume.window) - api.now();
  const keeper = isVersion ? `version ${version.number}` : pinnedMark && `mark ${pinnedMark}`;
  const stays = () => {
    if (picked.isNow) return null;
    if (keeper) return `Kept by ${keeper}, however old it gets.`;
    return leaves > 0
      ? `Leaves the window in ${span(leaves)} unless it is pinned${volume.history_limit ? ', or before that by the history limit' : ''}.`
      : 'Beyond the window.';
  };
  return html`
    ${picked.isExact === false && html`<p class="warn">Not every write is retained: this is the last retained moment before the one that was asked for.</p>`}
    ${version && html`<p class="dim">${isVersion ? 'Version' : 'The version before it,'} ${version.number}${
      version.label ? html` <q dir="auto">${version.label}</q>` : ''} is ${version.consistency}.</p>`}
    ${stays() && html`<p class="dim">${stays()}</p>`}`;
}
