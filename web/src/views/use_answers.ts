// SPDX-License-Identifier: Apache-2.0
// Where the page asks the hub about what is chosen.
import { useCallback, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { hub } from '../api/queries';
import type { State } from '../state/state';
import { useLatest } from './latest';
import { Asker, type Answers } from './asker';

/** The hub's answers to what is chosen. `reload` asks all of it again, of now. */
export function useAnswers(
  state: State,
): { answers: Answers; reload: () => void; offer: Asker['offer'] } {
  const asker = useRef<Asker | null>(null);
  const newest = useLatest(state);
  const first = useRef<State | null>(state);
  const [answers, setAnswers] = useState<Answers>(() => {
    const made = new Asker(hub, () => queueMicrotask(() => setAnswers(made.answers())));

    asker.current = made;
    void made.ask(state); // so that the answers come while the page is first rendered
    return made.answers();
  });
  const reload = useCallback(() => void asker.current!.ask(newest.current, true), []);
  const offer = useCallback<Asker['offer']>((...args) => asker.current!.offer(...args), []);

  useLayoutEffect(() => {
    if (state !== first.current) void asker.current!.ask(state);
    first.current = null;
  }, [state]);
  useLayoutEffect(() => () => asker.current!.end(), []);
  return { answers, reload, offer };
}
