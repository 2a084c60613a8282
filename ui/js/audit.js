// The audit log, newest first, a part at a time.
import { html, useEffect, useState } from './html.js';
import { Table, Wait } from './controls.js';
import { useLive } from './live.js';
import { ms, when } from './show.js';
import * as api from './api.js';

const PART = 100;

export function AuditPage() {
  const first = api.withQuery('/audit', { newest: true, limit: PART });
  const { data, problem } = useLive((signal) => api.page(first, signal), []);
  const [older, setOlder] = useState([]);
  const [next, setNext] = useState(undefined);
  const [filter, setFilter] = useState('');
  useEffect(() => { if (data && next === undefined) setNext(data.next); }, [data]);
  if (!data) return html`<${Wait} problem=${problem?.status ? problem : null} />`;
  const more = async () => {
    const part = await api.page(next);
    setOlder([...older, ...part.answer]);
    setNext(part.next);
  };
  // What came since the first part was read may be in none of the parts: numbers tell.
  const all = new Map([...older, ...data.answer].map((record) => [record.number, record]));
  const newest = [...all.values()].sort((a, b) => b.number - a.number);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (record) => {
    const text = `${record.action} ${record.volume} ${record.detail} ${record.who ?? record.caller ?? ''} ${record.from ?? ''}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  return html`<article>
    <header class="title"><h1 tabindex="-1">Audit log</h1></header>
    <label class="field">Only with these words
      <input value=${filter} autocomplete="off" onInput=${(event) => setFilter(event.target.value)} placeholder="revert pg" />
    </label>
    <${Table} caption="Audit log" head=${['When', 'Action', 'Volume', 'Detail', 'Who', 'From']} empty="Nothing."
      rows=${newest.filter(fits).map((record) => [
        when(ms(record.time)), record.action, record.volume, html`<span dir="auto">${record.detail}</span>`, record.who ?? record.caller ?? 'the server', record.from ?? ''])} />
    ${next && html`<button type="button" onClick=${more}>Show older</button>`}
  </article>`;
}
