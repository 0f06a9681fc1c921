// SPDX-License-Identifier: Apache-2.0
// The leak view: what has grown of the memory that lived at two moments.
import { isSnapshot } from '../profile/values';
import type { State, Times } from './state';
import { intervalOf, longer, WINDOW_S, type Interval } from './times';

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
  const [from, to] = timesOf(state, now);

  return { times: { from, to }, compare: null, grown: false };
}

/** The stretch of time that the page is about: in the leak view, between its moments. */
export function timesOf(state: State, now: number): Interval {
  const moments = leakOf(state, now);

  return moments ? [Math.min(...moments), Math.max(...moments)] : intervalOf(state.times, now);
}

/** Another stretch of time: in the leak view, between its moments. */
export const withTimes = (state: State, times: Times, now: number): Partial<State> =>
  leakOf(state, now) ? withLeak(state, intervalOf(times, now)) : { times };

/** A longer stretch of time. */
export function zoomedOut(state: State, now: number): Partial<State> {
  const [from, to] = longer(timesOf(state, now), now);

  return withTimes(state, { from, to }, now);
}

/** Another event. The leak view is only of live memory. */
export const withEvent = (state: State, event: string, now: number): Partial<State> => ({
  event,
  ...(leakOf(state, now) && !isSnapshot(event) && withoutLeak(state, now)),
});
