// The part of time that a timeline shows: arithmetic on `{begin, end}`, in milliseconds since 1970.

/** No view is shorter, in milliseconds. */
const SHORTEST_MS = 0.02;

export const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
export const lengthOf = (view) => view.end - view.begin;

/** The view moved, and shortened if need be, so that it lies within the whole. */
export function within(view, whole) {
  const length = Math.min(lengthOf(view), lengthOf(whole));
  const begin = clamp(view.begin, whole.begin, whole.end - length);
  return { begin, end: begin + length };
}

export function zoomed(view, whole, factor, around) {
  const length = clamp(lengthOf(view) * factor, SHORTEST_MS, lengthOf(whole));
  const share = (around - view.begin) / lengthOf(view);
  const begin = around - share * length;
  return within({ begin, end: begin + length }, whole);
}

export function panned(view, whole, by) {
  return within({ begin: view.begin + by, end: view.end + by }, whole);
}

/** A view of the same length, with its end at a time. */
export const endingAt = (view, end) => ({ begin: end - lengthOf(view), end });

/** A view of the same length around a time. */
export function around(view, whole, at) {
  const half = lengthOf(view) / 2;
  return within({ begin: at - half, end: at + half }, whole);
}

export const isWhole = (view, whole) => lengthOf(view) > 0.999 * lengthOf(whole);

/** The whole of a history: a little before its oldest moment, so that its edge is seen, to now. */
export function wholeOf(oldest, now) {
  const length = Math.max(now - oldest, 1000);
  return { begin: now - length * 1.02, end: now };
}
