// SPDX-License-Identifier: Apache-2.0
// The only place where the page asks the hub.
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
  const [answers, setAnswers] = useState<Answers>(() => {
    asker.current = new Asker(hub, () => setAnswers(asker.current!.answers()));
    return asker.current.answers();
  });
  const reload = useCallback(() => void asker.current!.ask(newest.current, true), []);
  const offer = useCallback<Asker['offer']>((...args) => asker.current!.offer(...args), []);

  useLayoutEffect(() => void asker.current!.ask(state), [state]);
  useLayoutEffect(() => () => asker.current!.end(), []);
  return { answers, reload, offer };
}
