// Jobs: what goes on in the background, and what is done.
import { html } from './html.js';
import { Table, Wait } from './controls.js';
import { useLive } from './live.js';
import { volumeLink } from './route.js';
import { bytes, ms, when } from './show.js';
import * as api from './api.js';

/** Work on volumes that is no job of the API's list: it stands in the volumes' own records. */
function workOf(volume) {
  const found = [];
  if (volume.import) {
    const { done_bytes: done, total_bytes: total } = volume.import;
    found.push({ kind: 'import', volume: volume.name, state: volume.import.trouble || 'running', percent: Math.floor((100 * done) / Math.max(total, 1)) });
  }
  if (volume.conversion) found.push({ kind: `conversion to ${volume.architecture}`, volume: volume.name, state: 'running', percent: null });
  return found;
}

export function JobsPage() {
  const { data, problem } = useLive(async (signal) => {
    const [jobs, volumes, pool] = await Promise.all(['/jobs', '/volumes', '/pool'].map((path) => api.get(path, signal)));
    return { jobs, work: volumes.flatMap(workOf), behind: pool.behind_bytes };
  }, []);
  if (!data) return html`<${Wait} problem=${problem?.status ? problem : null} />`;
  const all = [...data.work, ...data.jobs];
  const isOver = (job) => job.state === 'done' || job.state === 'stopped';
  all.sort((a, b) => isOver(a) - isOver(b));
  const progress = (job) => (isOver(job) || job.percent === null ? ''
    : html`<progress max="100" value=${job.percent} aria-label=${`${job.kind} ${job.volume}`}></progress> ${job.percent} %`);
  return html`<article>
    <header class="title"><h1 tabindex="-1">Jobs</h1></header>
    ${data.behind > 0 && html`<p class="warn">A device is brought up to date: ${bytes(data.behind)} are left.</p>`}
    <${Table} caption="Jobs" head=${['Kind', 'Of', 'State', 'Progress', 'Asked']} empty="Nothing goes on."
      rows=${all.map((job) => [
        job.kind,
        job.volume ? html`<a href=${volumeLink(job.volume)}>${job.volume}${job.id ? `@v:${job.version}` : ''}</a>` : 'the pool',
        job.state, progress(job), job.asked ? when(ms(job.asked)) : ''])} />
  </article>`;
}
