// Dialogs: of what changes something. Each says the command that does the same.
import { html, useEffect, useRef, useState } from './html.js';
import { Trouble, Facts } from './controls.js';
import { bytes, count, ms, plural, span, when } from './show.js';
import * as api from './api.js';

export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      // Once the dialog is gone: until then nothing else can have the focus.
      setTimeout(() => before?.isConnected && before.focus());
    };
  }, []);
  const onCancel = (event) => { event.preventDefault(); onClose(); };
  return html`<dialog ref=${element} aria-labelledby="dialog-title" onCancel=${onCancel}>
    <h2 id="dialog-title">${title}</h2>
    ${children}
  </dialog>`;
}

const Command = ({ text }) =>
  html`<p class="dim command">The same by command: <code dir="ltr">${text}</code></p>`;

/** Asks the server first what a revert would do, and shows it. */
export function RevertDialog({ volume, to, events, onClose, onDone }) {
  const [preview, setPreview] = useState(null);
  const [problem, setProblem] = useState(null);
  const [mayDisconnect, setMayDisconnect] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const path = api.volumePath(volume.name, '/revert');
  const moment = `seq:${to.seq}`;
  useEffect(() => {
    api.post(path, { to: moment, dry_run: true }).then(setPreview, setProblem);
  }, []);
  const hasClients = volume.clients > 0;
  const revert = async () => {
    setBusy(true);
    setProblem(null);
    try {
      onDone(await api.post(path, { to: moment, force: mayDisconnect }));
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const between = (events || []).reduce((sum, event) => sum + (event.seq > to.seq ? event.number : 0), 0);
  const staying = between > 0 ? `${plural(between, 'event')} in between ${between === 1 ? 'stays' : 'stay'} in the history.` : '';
  const changes = () => {
    if (preview) return html`<b>${bytes(preview.changed_bytes)}</b> of ${bytes(volume.size)}`;
    return problem ? 'not known' : 'being counted';
  };
  return html`<${Dialog} title=${`Revert ${volume.name}?`} onClose=${onClose}>
    <${Facts} rows=${[
      ['From', `the present, seq ${count(volume.latest.seq)}`],
      ['To', `${when(to.at, 1)}, seq ${count(to.seq)}, ${span(api.now() - to.at)} ago`],
      ['Changes', changes()],
    ]} />
    <p>Nothing is lost: the revert is an event of the history, and can be undone. ${staying}</p>
    ${hasClients && html`<div class="warning" role="alert">
      <p>${plural(volume.clients, 'client is', 'clients are')} attached. A file system that is
        mounted does not expect its disk to change: unmount it, and disconnect.</p>
      <label class="check"><input type="checkbox" checked=${mayDisconnect}
        onChange=${(event) => setMayDisconnect(event.target.checked)} />
        Disconnect them and revert</label>
    </div>`}
    <${Trouble} problem=${problem} />
    <${Command} text=${`hindsight revert ${volume.name} --to ${moment}${mayDisconnect ? ' --force' : ''}`} />
    <menu>
      <button type="button" onClick=${onClose}>Cancel</button>
      <button type="button" class="primary danger" id="do-revert" onClick=${revert}
        disabled=${isBusy || !preview || (hasClients && !mayDisconnect)}>Revert</button>
    </menu>
  </${Dialog}>`;
}

/** Asks for a name or a label, and perhaps for a tick. */
export function NameDialog({ title, label, value, check, isNeeded = true, action, command, run, onClose }) {
  const [name, setName] = useState(value);
  const [isTicked, setTicked] = useState(Boolean(check?.on));
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await run(name, isTicked);
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <label class="field">${label}
        <input id="dialog-name" value=${name} required=${isNeeded} autocomplete="off" spellcheck=${false}
          onInput=${(event) => setName(event.target.value)} />
      </label>
      ${check && html`<label class="check"><input type="checkbox" checked=${isTicked}
        onChange=${(event) => setTicked(event.target.checked)} /> ${check.text}</label>`}
      <${Trouble} problem=${problem} />
      <${Command} text=${command(name, isTicked)} />
      <menu>
        <button type="button" onClick=${onClose}>Cancel</button>
        <button class="primary" id="do-action">${action}</button>
      </menu>
    </form>
  </${Dialog}>`;
}

/** Asks before what cannot be undone; `wanted` has to be typed, and `preview` says what would go. */
export function GoneDialog({ title, wanted, preview, command, run, onClose }) {
  const [typed, setTyped] = useState('');
  const [would, setWould] = useState(null);
  const [problem, setProblem] = useState(null);
  useEffect(() => { preview().then(setWould, setProblem); }, []);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await run();
      onClose();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      <p>This cannot be undone.</p>
      <ul>${(would || []).map((one) => html`<li>${one.text}</li>`)}</ul>
      <label class="field">Type <code>${wanted}</code> to go on
        <input id="dialog-name" value=${typed} autocomplete="off" spellcheck=${false}
          onInput=${(event) => setTyped(event.target.value)} />
      </label>
      <${Trouble} problem=${problem} />
      <${Command} text=${command} />
      <menu>
        <button type="button" onClick=${onClose}>Cancel</button>
        <button class="primary danger" id="do-action" disabled=${typed !== wanted}>Delete</button>
      </menu>
    </form>
  </${Dialog}>`;
}

const KEYS = [
  ['\u2190 \u2192', 'one column back or forth; with Shift twenty'],
  ['Page Up, Page Down', 'the event before, and after'],
  ['[ ]', 'the write before, and after'],
  ['Home, End', 'the oldest moment, and the present'],
  ['+ \u2212 0', 'zoom in, out, all'],
  ['a', 'compare from here'],
  ['m', 'mark this moment'],
  ['c', 'copy the address of this moment'],
  ['r', 'revert to here'],
  ['/', 'type a moment'],
  ['?', 'these keys'],
];

export function KeysDialog({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <${Facts} rows=${KEYS.map(([keys, text]) => [html`<kbd>${keys}</kbd>`, text])} />
    <p class="dim">The wheel zooms at the pointer, dragging moves, two fingers do both, a tap picks.</p>
    <menu><button type="button" class="primary" onClick=${onClose}>Close</button></menu>
  </${Dialog}>`;
}

/** The note after a revert, with its Undo. */
export function revertedNote(name, done, onUndone) {
  const undo = async () => {
    const undone = await api.post(api.volumePath(name, '/revert'), { to: done.undo });
    onUndone(undone);
  };
  const text = `${name} is as it was at ${when(ms(done.to.time))}; ${bytes(done.changed_bytes)} changed.`;
  return { text, action: 'Undo', run: undo };
}
