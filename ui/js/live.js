// What is shown stays true: it is asked for again every two seconds, while somebody can see it.
import { useCallback, useEffect, useRef, useState } from './html.js';

const EVERY_MS = 2000;

/**
 * The answer of `ask(signal)`, asked when what is asked for (`keys`) has rested for so long; again
 * only while the server does not answer. `{answer, problem}`: what was there stays meanwhile.
 */
export function useAnswer(ask, keys, rest = 0) {
  const [state, setState] = useState({ answer: null, problem: null });
  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    const go = async () => {
      try {
        const answer = await ask(stop.signal);
        if (!stop.signal.aborted) setState({ answer, problem: null });
      } catch (problem) {
        if (stop.signal.aborted) return;
        setState({ answer: null, problem });
        if (problem.status === 0) timer = setTimeout(go, EVERY_MS);
      }
    };
    timer = setTimeout(go, rest);
    return () => { clearTimeout(timer); stop.abort(); };
  }, keys);
  return state;
}

/**
 * The answer of `ask(signal)`, asked again and again. `{data, problem, again}`: data stays what it
 * was when the server does not answer; it goes when what is asked for changes (`keys`).
 */
export function useLive(ask, keys, every = EVERY_MS) {
  const [state, setState] = useState({ data: null, problem: null });
  const current = useRef(ask);
  current.current = ask;
  const turn = useRef(null);
  const again = useCallback(() => turn.current?.(), []);
  useEffect(() => {
    let timer = null;
    let stop = new AbortController();
    let ended = false;
    setState({ data: null, problem: null });
    const go = async () => {
      clearTimeout(timer);
      stop.abort();
      const mine = new AbortController();
      stop = mine;
      try {
        const data = await current.current(mine.signal);
        if (!mine.signal.aborted) setState({ data, problem: null });
      } catch (problem) {
        if (mine.signal.aborted) return;
        setState((before) => ({ data: problem.status === 404 ? null : before.data, problem }));
      }
      if (!ended && !mine.signal.aborted && !document.hidden) timer = setTimeout(go, every);
    };
    const onSight = () => { if (!document.hidden) go(); };
    turn.current = go;
    document.addEventListener('visibilitychange', onSight);
    go();
    return () => {
      ended = true;
      clearTimeout(timer);
      stop.abort();
      document.removeEventListener('visibilitychange', onSight);
    };
  }, keys);
  return { ...state, again };
}
