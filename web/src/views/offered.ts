// SPDX-License-Identifier: Apache-2.0
// The values that the hub has for what the user is typing.
import { useEffect, useState } from 'preact/hooks';
import type { Values } from '../api/types';
import type { Operator } from '../state/filter';
import { errorText } from '../words/error';
import { useLatest } from './latest';

/** Asks for the values of a tag that the other conditions leave. */
export type Offer = (
  tag: string, op: Operator, typed: string, signal: AbortSignal,
) => Promise<Values>;

export interface Offered extends Values {
  isBusy: boolean; // the values are those of what was typed before
  error: string;
}

/** While the user types, nobody asks. */
const PAUSE_MS = 200;

const nothing: Offered = { values: [], truncated: false, isBusy: true, error: '' };

/** `known`: the values while nothing is typed, if the page has them already. */
export function useOffered(
  offer: Offer, tag: string, op: Operator, typed: string, known?: Values,
): Offered {
  const [found, setFound] = useState<Offered>(nothing);
  const ask = useLatest(offer);
  const same: Operator = op.endsWith('REGEXP') ? 'REGEXP' : '='; // it is offered the same values
  const isKnown = typed === '' && known !== undefined;

  useEffect(() => {
    if (isKnown) return setFound(nothing);
    const turn = new AbortController();
    const asking = async (): Promise<void> => {
      try {
        const values = await ask.current(tag, same, typed, turn.signal);
        setFound({ ...values, isBusy: false, error: '' });
      } catch (e) {
        if (!turn.signal.aborted)
          setFound((old) => ({ ...old, isBusy: false, error: errorText(e) }));
      }
    };
    const timer = setTimeout(() => void asking(), typed ? PAUSE_MS : 0);

    setFound((old) => ({ ...old, isBusy: true, error: '' }));
    return () => {
      clearTimeout(timer);
      turn.abort();
    };
  }, [tag, same, typed, isKnown]);
  return isKnown ? { ...known, isBusy: false, error: '' } : found;
}
