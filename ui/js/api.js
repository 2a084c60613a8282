// The HTTP API: this tab's token, calls, problems, and the server's time. Nothing here knows of
// the page.
//
// 1. The token, or a code that is changed for one, comes in the address once, is kept by the tab
//    alone, and leaves the address.
// 2. There is no cookie: another site has nothing to send in our name.

const PREFIX = '/api/v1';
const TOKEN_KEY = 'hindsight-token';
/** How long a login may take. */
const LOGIN_MS = 10_000;

/** Why a call was refused, or that nobody answered (status 0). */
export class Problem extends Error {
  constructor(body, status) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.hint = body.hint;
    this.kind = (body.type || '').split(':').pop();
    this.status = status;
    this.oldest = body.oldest;
    this.latest = body.latest;
  }
}

/**
 * Takes out of the address what lets this tab in: `?token=`, as the server prints it, or the code
 * of `hindsight page`, which is good once.
 */
export async function enter() {
  const address = new URL(location.href);
  const [, code] = /^#enter=(.*)$/.exec(address.hash) || [];
  const token = address.searchParams.get('token');
  if (code === undefined && token === null) return;
  const asked = address.href;
  if (code !== undefined) address.hash = '';
  address.searchParams.delete('token');
  history.replaceState(null, '', address.pathname + address.search + address.hash);
  if (token) keepToken(token);
  if (code === undefined) return;
  try {
    // The code is all that counts: whoever the tab is stays that, if it is not good.
    const entered = await request('POST', '/login', { code }, AbortSignal.timeout(LOGIN_MS), null);
    const before = ownToken();
    keepToken(entered.answer.secret);
    endToken(before).catch(() => {});
  } catch (problem) {
    // Nobody had the code: it is good still.
    if (!problem.status) history.replaceState(null, '', asked);
    // A tab that was nobody stays so: it is not to be whoever its certificate is.
    if (!ownToken()) forgetToken();
    throw problem.status === undefined ? new Problem({ detail: 'The server does not answer.' }, 0) : problem;
  }
}

/** This tab's token: empty when it is to be nobody, null when it never was somebody. */
const ownToken = () => sessionStorage.getItem(TOKEN_KEY);
const forgetToken = () => sessionStorage.setItem(TOKEN_KEY, '');
/** Whether this tab has no token any more: then it is nobody, certificate or not. */
export const isOut = () => ownToken() === '';
export const hasToken = () => Boolean(ownToken());
/** Whether the server took the token that this tab had for none of its own. */
let wasWrong = false;
export const hadWrongToken = () => wasWrong;

/** Ends a token that this tab had, if a login made it: others are not this tab's to end. */
async function endToken(token) {
  if (!token?.startsWith('hs1_')) return;
  const ended = request('DELETE', '/login', undefined, AbortSignal.timeout(LOGIN_MS), token);
  await ended.catch((problem) => { if (![401, 403].includes(problem.status)) throw problem; });
}

/** Makes this tab nobody's, and ends its token if a login made it. */
export const leave = () => endToken(ownToken()).finally(forgetToken);

export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token.trim());
}

/** Who this tab is for the server, as far as that was told. */
let who = null;
export const setWho = (told) => { who = told ?? null; };
const INCLUDED = {
  viewer: ['viewer'], reader: ['viewer', 'reader'], keeper: ['viewer', 'keeper'],
  operator: ['viewer', 'reader', 'keeper', 'operator'],
};
/** What a control has that needs a role. The server refuses in any case. */
export function needs(role) {
  const may = !who || who.role === 'admin' || INCLUDED[who.role]?.includes(role);
  return may ? {} : { disabled: true, title: `This needs the role ${role}.` };
}

/** By how much the server's clock is ahead of the browser's, in milliseconds. */
let ahead = 0;
export const setAhead = (by) => { ahead = by; };
export const clockAhead = () => ahead;
/** The server's time in milliseconds since 1970: ages are told by it. */
export const now = () => Date.now() + ahead;

/** Is told after every call whether the server answered. */
let onContact = () => {};
export const hearContact = (hear) => { onContact = hear; };

async function request(method, path, body, signal, token = ownToken()) {
  // Without one the server would take it for its certificate.
  if (token === '') throw new Problem({ detail: 'This tab is nobody.', type: 'unauthorized' }, 401);
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const text = body === undefined ? undefined : JSON.stringify(body);
  let response, answer;
  try {
    response = await fetch(PREFIX + path, { method, headers, body: text, signal });
    // An answer may be cut off as well.
    answer = response.status === 204 ? null : await response.json();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    onContact(false);
    throw new Problem({ detail: 'The server does not answer.', hint: 'Is it running?' }, 0);
  }
  onContact(true);
  if (response.status === 401 && token && token === ownToken()) {
    wasWrong = true;
    forgetToken();
  }
  if (!response.ok) throw new Problem(answer, response.status);
  const link = /<\/api\/v1([^>]+)>; rel="next"/.exec(response.headers.get('Link') || '');
  return { answer, next: link ? link[1] : null };
}

const only = (promise) => promise.then(({ answer }) => answer);
export const get = (path, signal) => only(request('GET', path, undefined, signal));
export const post = (path, body) => only(request('POST', path, body));
export const put = (path, body) => only(request('PUT', path, body));
export const remove = (path) => only(request('DELETE', path));
/** A part of a list, and the path of the next part: `{answer, next}`. */
export const page = (path, signal) => request('GET', path, undefined, signal);

const escape = encodeURIComponent;
/** A path with a query; what is null or undefined is left out. */
export function withQuery(path, fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  const query = given.map(([name, value]) => `${name}=${escape(value)}`).join('&');
  return query ? `${path}?${query}` : path;
}
export const volumePath = (name, part = '') => `/volumes/${escape(name)}${part}`;
export const sharePath = (name, part = '') => `/shares/${escape(name)}${part}`;
export const schedulePath = ({ volume, group }) =>
  volume ? volumePath(volume, '/schedule') : `/groups/${escape(group)}/schedule`;
