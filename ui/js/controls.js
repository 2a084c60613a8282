// Small parts that several views share.
import { html, useEffect, useRef, useState } from './html.js';
import { bytes } from './show.js';

/** A text to copy, with its button. */
export function Copy({ label, text }) {
  const [isDone, setDone] = useState(false);
  const shown = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without leave to use the clipboard: what is selected can be copied by hand.
      getSelection().selectAllChildren(shown.current);
      return;
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<div class="copy">
    <span class="dim">${label}</span>
    <code ref=${shown} dir="ltr" title=${text}>${text}</code>
    <button type="button" onClick=${copy} aria-label=${`Copy ${label}`} data-copy=${label}>
      ${isDone ? 'Copied' : 'Copy'}
    </button>
  </div>`;
}

/** A refusal, with its hint. */
export function Trouble({ problem, children }) {
  if (!problem) return null;
  return html`<div class="trouble" role="alert">
    <p>${problem.message}</p>
    ${problem.hint && html`<p class="dim">${problem.hint}</p>`}
    ${children}
  </div>`;
}

export function Wait({ problem, children }) {
  return problem
    ? html`<div class="wait"><${Trouble} problem=${problem} /></div>`
    : html`<p class="wait">${children || 'Loading'}</p>`;
}

/** The space of a pool or volume by its uses; `parts` are `{name, label, bytes}`. */
export function SpaceBar({ parts, total, label }) {
  const all = Math.max(total, 1);
  const width = (part) => `${Math.max(part.bytes > 0 ? 0.5 : 0, (100 * part.bytes) / all)}%`;
  const text = `${label}: ${parts.map((part) => `${part.label} ${bytes(part.bytes)}`).join(', ')}`;
  return html`<div class="space" role="img" aria-label=${text}>
    ${parts.map((part) => html`<i class=${`use-${part.name}`} style=${{ width: width(part) }}></i>`)}
  </div>`;
}

/** Names and values, in two columns. */
export function Facts({ rows }) {
  return html`<dl class="facts">
    ${rows.filter(Boolean).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
  </dl>`;
}

/** A table that scrolls by itself where the screen is narrow. */
export function Table({ head, rows, caption, empty }) {
  if (rows.length === 0) return html`<p class="dim">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/** Tabs as the ARIA pattern has them: one stop of the Tab key, arrows between them. */
export function Tabs({ tabs, open, onOpen, label }) {
  const list = useRef(null);
  const onKey = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const index = tabs.findIndex(([id]) => id === open);
    const [id] = tabs[(index + step + tabs.length) % tabs.length];
    onOpen(id);
    list.current.querySelector(`#tab-${id}`).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${onKey}>
    ${tabs.map(([id, name]) => html`<button type="button" role="tab" id=${`tab-${id}`}
      aria-selected=${open === id ? 'true' : 'false'} aria-controls="panel"
      tabindex=${open === id ? 0 : -1} onClick=${() => onOpen(id)}>${name}</button>`)}
  </div>`;
}

/** The width of an element, as it changes. */
export function useWidth(element) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    seen.observe(element.current);
    return () => seen.disconnect();
  }, []);
  return width;
}
