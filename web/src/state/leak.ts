// SPDX-License-Identifier: Apache-2.0
// The leak view: what has grown of the memory that lived at two moments.
import type { State } from './state';
import { intervalOf, WINDOW_S, type Interval } from './times';

/** Whether values are of a moment (live memory), not of a stretch of time. */
export const isSnapshot = (event: string): boolean => event.endsWith('-inuse');

/** The two moments of the leak view; null: it is not chosen. */
export const leakOf = ({ event, times, compare, grown }: State, now: number): Interval | null =>
  compare && grown && isSnapshot(event)
    ? [intervalOf(compare.times, now)[1], intervalOf(times, now)[1]]
    : null;

/** Compares the snapshots of two moments, and shows what has grown. */
export function withLeak({ process, filter, compare }: State, at: Interval): Partial<State> {
  const [before, times] = at.map((t) => ({ from: t - WINDOW_S, to: t }));

  return { times, compare: { process, filter, ...compare, times: before }, grown: true };
}

/** The stretch of time between the two moments, without a comparison. */
export function withoutLeak(state: State, now: number): Partial<State> {
  const [a, b] = leakOf(state, now)!;

  return { times: { from: Math.min(a, b), to: Math.max(a, b) }, compare: null, grown: false };
}

/** Another event. The leak view is only of live memory. */
export const withEvent = (state: State, event: string, now: number): Partial<State> => ({
  event,
  ...(leakOf(state, now) && !isSnapshot(event) && withoutLeak(state, now)),
});
