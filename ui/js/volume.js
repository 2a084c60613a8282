// One volume or share: its timeline, the picked moment, and what there is to know of it.
import { html, useCallback, useEffect, useRef, useState } from './html.js';
import { Tabs, Wait } from './controls.js';
import { KeysDialog, NameDialog, RevertDialog, revertedNote } from './dialogs.js';
import { Changes } from './changes.js';
import { Moment, addresses } from './moment.js';
import { Events, Marks, Settings, Space, Versions } from './tables.js';
import { Timeline } from './timeline.js';
import { useLive } from './live.js';
import { parse, setQuery } from './route.js';
import { bytes, ms, plural, rfc, shellWord, span, when } from './show.js';
import * as api from './api.js';

const TABS = [
  ['changes', 'Changes'], ['events', 'Events'], ['versions', 'Versions'], ['marks', 'Marks'],
  ['space', 'Space'], ['settings', 'Settings'],
];

/** A moment as it is shown and acted on: by its seq. */
const momentOf = (resolved) => ({ seq: resolved.seq, time: resolved.time, at: ms(resolved.time), isExact: resolved.exact });

/** The volume; of a share also how it is mounted. */
async function describe(name, signal) {
  const volume = await api.get(api.volumePath(name), signal);
  if (!volume.share) return volume;
  const share = await api.get(api.sharePath(name), signal);
  return { ...volume, mount: share.mount };
}

export function VolumePage({ name, note }) {
  const shown = useRef(parse(location.hash).query).current;
  const { data: volume, problem, again } = useLive((signal) => describe(name, signal), [name]);
  const [fixed, setFixed] = useState(null);
  const [base, setBase] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const [told, setTold] = useState(null);
  const [dialog, setDialog] = useState(null);
  const [tab, setTab] = useState(shown.get('tab') || 'changes');
  const [stamp, setStamp] = useState(0);
  const asked = useRef(0);

  const latest = volume && { ...momentOf({ ...volume.latest, exact: true }), isNow: true };
  const picked = fixed && fixed.seq !== latest?.seq ? fixed : latest;

  const pick = useCallback(async (at) => {
    const turn = asked.current += 1;
    try {
      const resolved = at === 'latest' ? null : momentOf(await api.get(api.withQuery(api.volumePath(name, '/resolve'), { at })));
      if (turn !== asked.current) return;
      setFixed(resolved);
      setRefusal(null);
      setQuery({ at: resolved ? `seq:${resolved.seq}` : null });
    } catch (error) {
      if (turn === asked.current) setRefusal(error);
    }
  }, [name]);

  const compareFrom = (moment) => {
    setBase(moment);
    setQuery({ a: moment ? `seq:${moment.seq}` : null });
  };
  useEffect(() => {
    if (shown.get('at')) pick(shown.get('at'));
    if (!shown.get('a')) return;
    api.get(api.withQuery(api.volumePath(name, '/resolve'), { at: shown.get('a') }))
      .then((resolved) => setBase(momentOf(resolved)), setRefusal);
  }, [name]);

  /** Something was done: all that is shown is asked for again. */
  const changed = () => {
    again();
    setStamp((turn) => turn + 1);
  };
  const onReverted = (done) => {
    setDialog(null);
    pick('latest');
    changed();
    note(revertedNote(name, done, (undone) => {
      note({ text: `Undone: ${bytes(undone.changed_bytes)} changed back.` });
      changed();
    }));
  };
  const open = (kind, moment = picked) => setDialog({ kind, moment });
  const copy = async () => {
    const [, text] = addresses(volume, picked)[0];
    await navigator.clipboard.writeText(text).then(() => note({ text: `Copied ${text}` }), () => {});
  };
  const onKey = (event) => {
    const keys = {
      a: () => compareFrom(picked),
      m: () => open('mark'),
      c: copy,
      r: () => !picked.isNow && open('revert'),
      '/': () => document.getElementById('moment-text')?.focus(),
      '?': () => open('keys'),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  };
  const onPageKey = (event) => {
    if (!event.target.closest('input, textarea, select, dialog, [role=slider]')) onKey(event);
  };

  if (!volume || !picked) return html`<${Wait} problem=${problem} />`;
  const openTab = (id) => { setTab(id); setQuery({ tab: id === 'changes' ? null : id }); };
  const events = told?.events;
  const panels = {
    changes: () => html`<${Changes} volume=${volume} from=${base ?? (picked.isNow ? lastEvent(volume, events, picked) : picked)}
      to=${base ? picked : latest} hasBase=${Boolean(base)} />`,
    events: () => html`<${Events} told=${told} onPick=${pick} onRevert=${(moment) => open('revert', moment)} />`,
    versions: () => html`<${Versions} volume=${volume} stamp=${stamp} newest=${newestVersion(events)} onPick=${pick} onChanged=${changed} />`,
    marks: () => html`<${Marks} volume=${volume} stamp=${stamp} onPick=${pick} onChanged=${changed} />`,
    space: () => html`<${Space} volume=${volume} />`,
    settings: () => html`<${Settings} volume=${volume} />`,
  };
  return html`<article class="volume" onKeyDown=${onPageKey}>
    <header class="title">
      <h1 tabindex="-1">${name}</h1>
      <span class=${`chip ${volume.state}`}>${volume.state}</span>
      <span class="dim">${volume.share ? 'share' : bytes(volume.size)}, ${volume.architecture}, ${volume.granularity}${
        volume.share ? '' : `, ${plural(volume.clients, 'client')}`}</span>
    </header>
    ${volume.state === 'refusing-writes' && html`<p class="warning" role="alert">A write or flush has failed: this
      volume refuses writes until the server is started again. Its past can be opened as before.</p>`}
    <${Timeline} name=${name} picked=${picked} base=${base} stamp=${stamp} onPick=${pick} onTold=${setTold} onKey=${onKey}
      shown=${{ since: shown.get('since'), until: shown.get('until') }}
      onView=${(view) => setQuery({ since: view && rfc(view.begin), until: view && rfc(view.end) })} />
    <${Held} volume=${volume} />
    <div class="panes">
      <${Moment} volume=${volume} picked=${picked} base=${base} refusal=${refusal} events=${events}
        onPick=${pick} onOpen=${open} onCompare=${compareFrom} />
      <section class="side" aria-label="Details">
        <${Tabs} tabs=${TABS} open=${tab} onOpen=${openTab} label="Details" />
        <div role="tabpanel" id="panel" aria-labelledby=${`tab-${tab}`}>${(panels[tab] || panels.changes)()}</div>
      </section>
    </div>
    ${dialog && html`<${Dialogs} ...${dialog} volume=${volume} events=${events} note=${note} onChanged=${changed}
      onReverted=${onReverted} onClose=${() => setDialog(null)} />`}
  </article>`;
}

/** The newest version on the line: lists are read again when there is another. */
const newestVersion = (events) => events?.filter((one) => one.kind === 'version').at(-1)?.seq;

/** The newest event before the present: what changed since is the question at the present. */
function lastEvent(volume, events, present) {
  // A share has no tree before the first of its writes.
  const isBefore = (one) => one.seq < present.seq && !(volume.share && one.seq === 0);
  const event = events?.filter(isBefore).at(-1);
  return event ? { seq: event.seq, time: event.time, at: event.at } : null;
}

/** How far back one can go, and whether that is as far as was wished. */
function Held({ volume }) {
  const oldest = ms(volume.oldest.time);
  const bound = (text) => (volume.live_exact ? '' : ` ${text}`);
  return html`<p class=${volume.window_kept ? 'held' : 'held warn'}>
    Can be opened back to <b>${when(oldest)}</b> (${span(api.now() - oldest)}).
    The window is ${volume.window}${volume.window_kept ? '' : ', and is not kept: space or a limit took some of it'}.
    ${' '}Present ${bytes(volume.live_bytes)}${bound('at most')}, history ${bytes(volume.history_bytes)}${bound('at least')},
    of it pinned ${bytes(volume.pinned_bytes)}.
  </p>`;
}

function Dialogs({ kind, moment, volume, events, note, onChanged, onReverted, onClose }) {
  const { name } = volume;
  const at = moment.isNow ? 'latest' : `seq:${moment.seq}`;
  const done = (text) => { note({ text }); onChanged(); };
  if (kind === 'keys') return html`<${KeysDialog} onClose=${onClose} />`;
  if (kind === 'revert') {
    return html`<${RevertDialog} volume=${volume} to=${moment} events=${events} onClose=${onClose} onDone=${onReverted} />`;
  }
  if (kind === 'clone') {
    return html`<${NameDialog} title="Clone this moment" label="Name of the new one" value=${`${name}-${moment.seq}`}
      action="Clone" command=${(clone) => `hindsight clone ${name}@${at} ${clone}`} onClose=${onClose}
      run=${async (clone) => {
        await api.post(api.volumePath(name, '/clones'), { name: clone, at });
        done(`${clone} is there, and shares every block with ${name}.`);
      }} />`;
  }
  if (kind === 'version') {
    return html`<${NameDialog} title="Capture the present" label="Label" value="" isNeeded=${false} action="Capture"
      command=${(label) => `hindsight version create ${name}${label ? ` --label ${shellWord(label)}` : ''}`} onClose=${onClose}
      run=${async (label) => {
        const version = await api.post(api.volumePath(name, '/versions'), { label });
        done(`Version ${version.number} is captured, ${version.consistency}.`);
      }} />`;
  }
  return html`<${NameDialog} title=${kind === 'pin' ? 'Pin this moment' : 'Mark this moment'} label="Name of the mark" value=""
    action=${kind === 'pin' ? 'Pin' : 'Mark'} check=${{ text: 'Pin it: keep it however old it gets', on: kind === 'pin' }}
    command=${(mark, pin) => `hindsight mark create ${name} ${mark || 'MARK'} --at ${at}${pin ? ' --pin' : ''}`} onClose=${onClose}
    run=${async (mark, pin) => {
      await api.post(api.volumePath(name, '/marks'), { name: mark, at, pin });
      done(`Marked ${mark}${pin ? ', and pinned' : ''}.`);
    }} />`;
}
