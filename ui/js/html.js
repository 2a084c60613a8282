// What every view needs of the vendored libraries, in one place.
import htm from '/vendor/htm.mjs';
import { h, render } from '/vendor/preact.mjs';

export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from '/vendor/hooks.mjs';
export { render };

/** Templates. Never build one from data: htm remembers each by its text. */
export const html = htm.bind(h);
