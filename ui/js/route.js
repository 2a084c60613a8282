// Where one is: all of it stands in the fragment, so that a link shows what was seen.
//
// `#/`, `#/v/NAME?at=M&a=M&since=T&until=T&tab=T`, `#/pool`, `#/jobs`, `#/schedules`, `#/audit`.
import { useEffect, useState } from './html.js';

export function parse(fragment) {
  const [path, query] = fragment.replace(/^#/, '').split('?');
  const [, page, name] = path.split('/');
  return {
    page: page || 'overview',
    name: name ? decoded(name) : null,
    query: new URLSearchParams(query || ''),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const volumeLink = (name, fields = {}) => {
  const query = new URLSearchParams(fields).toString();
  return `#/v/${encodeURIComponent(name)}${query ? `?${query}` : ''}`;
};

/** Changes what the address says is seen, without a step back to here; null takes a field away. */
export function setQuery(fields) {
  const [path] = location.hash.split('?');
  const { query } = parse(location.hash);
  for (const [name, value] of Object.entries(fields)) {
    if (value === null || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, '', `${location.pathname}${path}${text ? `?${text}` : ''}`);
}

/** The route, as it changes. */
export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const onChange = () => setRoute(parse(location.hash));
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return route;
}
