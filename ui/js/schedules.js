// Schedules of versions: what there is in plain words, and changes that are looked at before they
// are saved.
import { html, useState } from './html.js';
import { Table, Trouble, Wait } from './controls.js';
import { Dialog } from './dialogs.js';
import { useLive } from './live.js';
import { volumeLink } from './route.js';
import { count, ms, plural, when } from './show.js';
import * as api from './api.js';

const RULES = ['last', 'hourly', 'daily', 'weekly', 'monthly', 'yearly'];

export const rhythm = (schedule) => (schedule.every ? `every ${schedule.every}` : `at ${schedule.cron} (cron, UTC)`);

export function keepWords(keep) {
  const words = RULES.filter((rule) => keep[rule] > 0).map((rule) => `${keep[rule]} ${rule}`);
  if (keep.within) words.push(`all of the last ${keep.within}`);
  return words.length ? `keeps ${words.join(', ')}` : 'keeps all';
}

export function SchedulesPage({ note }) {
  const { data, problem, again } = useLive(async (signal) => {
    const [schedules, volumes, shares] = await Promise.all(
      ['/schedules', '/volumes', '/shares'].map((path) => api.get(path, signal)));
    return { schedules, names: [...volumes, ...shares].map((one) => one.name) };
  }, []);
  const [edited, setEdited] = useState(null);
  if (!data) return html`<${Wait} problem=${problem?.status ? problem : null} />`;
  const { schedules, names } = data;
  const free = names.filter((name) => !schedules.some((one) => one.volume === name));
  const ofWhat = (one) => one.volume ?? `group ${one.group}`;
  const row = (one) => [
    one.volume ? html`<a href=${volumeLink(one.volume)}>${one.volume}</a>` : ofWhat(one),
    rhythm(one), keepWords(one.keep), one.next ? when(ms(one.next)) : '', count(one.captures),
    one.error ? html`<span class="warn">${one.error}</span>` : '',
    html`<button type="button" aria-label=${`Change the schedule of ${ofWhat(one)}`} ...${api.needs('admin')} onClick=${() => setEdited(one)}>Change</button>`,
  ];
  return html`<article>
    <header class="title"><h1 tabindex="-1">Schedules</h1></header>
    <${Table} caption="Schedules" head=${['Of', 'When', 'Keeps', 'Next', 'Captured', 'Trouble', 'Action']} rows=${schedules.map(row)}
      empty="None: versions are captured by hand. Every moment of a window can be opened without them." />
    ${free.length > 0 && html`<p class="acts">${free.slice(0, 20).map((name) => html`<button type="button"
      ...${api.needs('admin')} onClick=${() => setEdited({ volume: name, every: '1h', cron: null, keep: { hourly: 24, daily: 7 } })}>Schedule for ${name}</button>`)}</p>`}
    ${edited && html`<${ScheduleDialog} schedule=${edited} onClose=${() => setEdited(null)}
      onSaved=${(text) => { note({ text }); setEdited(null); again(); }} />`}
  </article>`;
}

function ScheduleDialog({ schedule, onClose, onSaved }) {
  const [every, setEvery] = useState(schedule.every ?? '');
  const [cron, setCron] = useState(schedule.cron ?? '');
  const [keep, setKeep] = useState(schedule.keep);
  const [preview, setPreview] = useState(null);
  const [problem, setProblem] = useState(null);
  const path = api.schedulePath(schedule);
  const name = schedule.volume ?? schedule.group;
  const rules = Object.fromEntries(RULES.map((rule) => [rule, keep[rule] ?? 0]));
  const body = (isDry) => ({ ...(cron ? { cron } : { every }), keep: rules, dry_run: isDry });
  const ask = (isDry) => api.put(path, body(isDry)).then((answer) => {
    setProblem(null);
    if (isDry) setPreview(answer);
    else onSaved(`The schedule of ${name} is ${rhythm(answer)}.`);
  }, setProblem);
  const edit = (change) => (event) => { change(event.target.value); setPreview(null); };
  const submit = (event) => { event.preventDefault(); ask(!preview); };
  const remove = () => api.remove(path).then(() => onSaved(`${name} has no schedule any more; its versions stay.`), setProblem);
  const flags = RULES.filter((rule) => rules[rule] > 0).map((rule) => ` --keep-${rule} ${rules[rule]}`).join('');
  const command = `hindsight ${schedule.group ? 'group' : 'version'} schedule set ${name} ${cron ? `--cron '${cron}'` : `--every ${every}`}${flags}`;
  return html`<${Dialog} title=${`Schedule of ${name}`} onClose=${onClose}>
    <form onSubmit=${submit}>
      <div class="grid">
        <label class="field">Every <input value=${every} disabled=${Boolean(cron)} onInput=${edit(setEvery)} placeholder="1h" /></label>
        <label class="field">or cron, in UTC <input value=${cron} onInput=${edit(setCron)} placeholder="30 3 * * *" /></label>
        ${RULES.map((rule) => html`<label class="field">Keep ${rule}
          <input type="number" min="0" value=${keep[rule] ?? 0} onInput=${edit((value) => setKeep({ ...keep, [rule]: Number(value) }))} /></label>`)}
      </div>
      ${preview && html`<div class="preview" role="status">
        <p>${preview.goes.length === 0 ? 'None of the versions there are would go.'
          : `${plural(preview.goes.length, 'version')} would go now:`}</p>
        <ul>${preview.goes.slice(0, 20).map((one) => html`<li>version ${one.number} of ${when(ms(one.time))}</li>`)}</ul>
      </div>`}
      <${Trouble} problem=${problem} />
      <p class="dim command">The same by command: <code dir="ltr">${command}</code></p>
      <menu>
        ${schedule.set && html`<button type="button" onClick=${remove}>Remove</button>`}
        <button type="button" onClick=${onClose}>Cancel</button>
        <button class="primary" id="do-action">${preview ? 'Save' : 'Preview'}</button>
      </menu>
    </form>
  </${Dialog}>`;
}
