// What there is to know of a volume, as tables: events, versions, marks, space, settings.
import { html, useEffect, useState } from './html.js';
import { Facts, SpaceBar, Table, Trouble } from './controls.js';
import { GoneDialog } from './dialogs.js';
import { keepWords, rhythm } from './schedules.js';
import { useAnswer, useLive } from './live.js';
import { bytes, count, ms, plural, span, when } from './show.js';
import * as api from './api.js';

/** Rows that are shown at once; the newest come first. */
const ROWS = 100;

const momentButton = (seq, at, onPick) =>
  html`<button type="button" class="link" onClick=${() => onPick(`seq:${seq}`)}>${when(at)}</button>`;

/** Shows more on demand: no list is as long as the history. */
function useMore(rows) {
  const [limit, setLimit] = useState(ROWS);
  const rest = rows.length - limit;
  const more = rest > 0 && html`<button type="button" onClick=${() => setLimit(limit + ROWS)}>
    Show more (${count(rest)} left)</button>`;
  return [rows.slice(0, limit), more];
}

/** Events of the part of time that the line shows. */
export function Events({ told, onPick, onRevert }) {
  const newest = told ? [...told.events].reverse() : [];
  const [rows, more] = useMore(newest);
  if (!told) return html`<p class="dim">Loading</p>`;
  if (told.areCounted) {
    const sums = {};
    for (const { kind, count: number } of told.event_counts) sums[kind] = (sums[kind] || 0) + number;
    const words = Object.entries(sums).map(([kind, number]) => plural(number, kind));
    return html`<p>More than can be listed at once: ${words.join(', ')}. Zoom in to see each.</p>`;
  }
  const undo = (event) => {
    const from = event.kind === 'revert' && /from seq (\d+)/.exec(event.detail);
    if (!from) return '';
    const moment = { seq: Number(from[1]), at: event.at };
    return html`<button type="button" ...${api.needs('operator')} onClick=${() => onRevert(moment)}>Undo</button>`;
  };
  return html`<${Table} caption="Events" head=${['When', 'Event', 'Seq', 'Action']} empty="Nothing but writes in this time."
    rows=${rows.map((event) => [
      momentButton(event.seq, event.at, onPick),
      html`<i class=${`key-${event.kind}`} aria-hidden="true"></i>${event.kind} <span dir="auto">${event.detail}</span>`,
      count(event.seq),
      undo(event),
    ])} />${more}`;
}

/** A whole list, part after part, asked for when something was done. */
function useList(path, keys) {
  const { answer: list, problem } = useAnswer(async (signal) => {
    const all = [];
    for (let next = path; next;) {
      const part = await api.page(next, signal);
      all.push(...part.answer);
      next = part.next;
    }
    return all;
  }, [path, ...keys]);
  return { list, problem };
}

export function Versions({ volume, stamp, newest, onPick, onChanged }) {
  const { list, problem } = useList(api.volumePath(volume.name, '/versions'), [stamp, newest]);
  const [going, setGoing] = useState(null);
  const [rows, more] = useMore(list ? [...list].reverse() : []);
  if (!list) return html`<p class="dim">${problem ? problem.message : 'Loading'}</p>`;
  const row = (version) => [
    version.number,
    momentButton(version.seq, ms(version.time), onPick),
    html`<span dir="auto">${version.label}</span>`,
    version.consistency,
    `${version.bytes_exact ? '' : '\u2264 '}${bytes(version.bytes_changed)}`,
    version.made_by,
    html`<button type="button" aria-label=${`Delete version ${version.number}`} ...${api.needs('admin')} onClick=${() => setGoing(version.number)}>Delete</button>`,
  ];
  const path = (number, isDry) =>
    api.volumePath(volume.name, `/versions?from=${number}&to=${number}${isDry ? '&dry_run=true' : ''}`);
  return html`
    <${Table} caption="Versions" head=${['Number', 'When', 'Label', 'Consistency', 'Changed', 'By', 'Action']}
      rows=${rows.map(row)} empty="No versions: moments of the window can be opened without." />${more}
    ${going !== null && html`<${GoneDialog} title=${`Delete version ${going}?`} wanted=${`${volume.name}@v:${going}`}
      command=${`hindsight version delete ${volume.name} ${going}`} onClose=${() => setGoing(null)}
      preview=${async () => (await api.remove(path(going, true))).would}
      run=${async () => { await api.remove(path(going, false)); onChanged(); }} />`}`;
}

export function Marks({ volume, stamp, onPick, onChanged }) {
  const { list, problem } = useList(api.volumePath(volume.name, '/marks'), [stamp]);
  const [refusal, setRefusal] = useState(null);
  const [rows, more] = useMore(list ? [...list].sort((a, b) => b.seq - a.seq) : []);
  if (!list) return html`<p class="dim">${problem ? problem.message : 'Loading'}</p>`;
  const remove = (name) => api.remove(api.withQuery(api.volumePath(volume.name, '/marks'), { name })).then(onChanged, setRefusal);
  const row = (mark) => [
    html`<b>${mark.name}</b>`,
    momentButton(mark.seq, ms(mark.time), onPick),
    mark.pinned ? 'pinned' : 'not pinned',
    html`<button type="button" aria-label=${`Delete mark ${mark.name}`} ...${api.needs('admin')} onClick=${() => remove(mark.name)}>Delete</button>`,
  ];
  return html`<${Trouble} problem=${refusal} />
    <${Table} caption="Marks" head=${['Name', 'When', 'Kept', 'Action']} rows=${rows.map(row)} empty="No marks." />${more}`;
}

export function Space({ volume }) {
  const { data: space, problem } = useLive((signal) => api.get(api.volumePath(volume.name, '/space'), signal), [volume.name]);
  if (!space) return html`<p class="dim">${problem ? problem.message : 'Loading'}</p>`;
  const rest = Math.max(0, space.history_bytes - space.pinned_bytes);
  const parts = [
    { name: 'live', label: 'present', bytes: space.live_bytes },
    { name: 'history', label: 'history', bytes: rest },
    { name: 'pinned', label: 'pinned', bytes: space.pinned_bytes },
  ];
  const bound = (text, exact) => (exact ? text : `${text} (a bound, until it is counted)`);
  const ages = space.history_by_age.map((age) => [age.below ? `less than ${age.below} ago` : 'before that', bytes(age.bytes)]);
  const holder = (one) => [one.names.join(' to '), plural(one.moments, 'moment'), bytes(one.held_bytes), bytes(one.own_bytes)];
  return html`
    <${SpaceBar} parts=${parts} total=${space.live_bytes + space.history_bytes} label="Space" />
    <${Facts} rows=${[
      [html`<i class="use-live"></i>Present`, bound(bytes(space.live_bytes), space.live_exact)],
      [html`<i class="use-history"></i>History`, bound(bytes(space.history_bytes), space.live_exact)],
      [html`<i class="use-pinned"></i>of it pinned`, bytes(space.pinned_bytes)],
      ['Reclaimable', bytes(space.reclaimable_bytes)],
      ['Growth', space.growth ? `${bytes(space.growth.bytes_per_day)} a day` : 'not known yet'],
      space.limit_lasts && ['The limit lasts', space.limit_lasts],
    ]} />
    <h3>History by when it was written over</h3>
    <${Table} caption="History by age" head=${['When', 'Bytes']} rows=${ages} empty="No history." />
    <h3>Held by</h3>
    <${Table} caption="Holders of history" head=${['Moment', 'How many', 'Holds', 'Alone']} rows=${space.holders.map(holder)}
      empty="Nothing is held beyond the window." />`;
}

export function Settings({ volume }) {
  const [schedule, setSchedule] = useState(undefined);
  useEffect(() => {
    api.get(api.volumePath(volume.name, '/schedule')).then(setSchedule, () => setSchedule(null));
  }, [volume.name]);
  const planned = () => {
    if (schedule === undefined) return 'being asked for';
    return schedule ? `${rhythm(schedule)}; ${keepWords(schedule.keep)}` : 'none';
  };
  return html`
    <${Facts} rows=${[
      ['Size', bytes(volume.size)],
      ['Architecture', volume.architecture],
      ['Granularity', volume.granularity],
      ['Window', volume.window],
      ['History limit', volume.history_limit ? bytes(volume.history_limit) : 'none'],
      ['Map extent', bytes(volume.extent)],
      ['Cache', volume.cache ? bytes(volume.cache.bytes) : 'none'],
      ['Schedule', html`${planned()} (<a href="#/schedules">schedules</a>)`],
      ['Hook', volume.hook ?? 'none'],
      ['Made', `${when(ms(volume.created))}, ${span(api.now() - ms(volume.created))} ago`],
      volume.cloned_from && ['Cloned from', `${volume.cloned_from.volume}@seq:${volume.cloned_from.seq}`],
    ]} />
    <p class="dim">To change them: <code>hindsight ${volume.share ? 'share' : 'volume'} set ${volume.name} --window 7d</code></p>`;
}
