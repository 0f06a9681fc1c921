// SPDX-License-Identifier: Apache-2.0
// The address is where the state lives: a link, "back" and "forward" change it.
import { useCallback, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { parse, print } from '../state/address';
import { changed, isStep } from '../state/change';
import type { Change, State } from '../state/state';

const now = (): number => Math.floor(Date.now() / 1000);

export function useAddress(): [State, Change] {
  const [state, setState] = useState(() => parse(location.hash, now()));
  const newest = useRef(state);
  const show = useCallback((next: State) => setState((newest.current = next)), []);
  const change = useCallback<Change>((part, how) => {
    const next = changed(newest.current, part);
    const isPushed = how ? how === 'push' : isStep(part);

    if (print(next) === print(newest.current)) return;
    if (isPushed) history.pushState(null, '', `#${print(next)}`);
    else history.replaceState(null, '', `#${print(next)}`);
    show(next);
  }, [show]);

  useLayoutEffect(() => {
    const follow = (): void => show(parse(location.hash, now()));

    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, [show]);
  return [state, change];
}
