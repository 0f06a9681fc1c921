// SPDX-License-Identifier: Apache-2.0
// The other selection of a comparison: ways to choose it, and to end it.
import { and, printFilter } from './filter';
import { narrowed } from './narrow';
import type { Compare, State } from './state';
import { intervalOf } from './times';

const earlier: [seconds: number, text: string][] = [
  [3600, 'an hour before'],
  [86400, 'a day before'],
  [7 * 86400, 'a week before'],
];

/** How much earlier another time of the same length may be, from the time just before. */
export function offsetsOf(state: State, now: number): [seconds: number, text: string][] {
  const [from, to] = intervalOf(state.times, now);
  const others = earlier.filter(([seconds]) => seconds !== to - from);

  return [[to - from, 'the time just before'], ...others];
}

/** What the other selection does not say, it has from the one before it, or from the first one. */
export function comparedWith(state: State, other: Partial<Compare>): Partial<State> {
  const { times, process, filter, compare } = state;

  return { compare: { times, process, filter, ...compare, ...other }, colours: 'difference' };
}

/** The same at an earlier time of the same length. Both times stay what they are now. */
export function withEarlier(state: State, seconds: number, now: number): Partial<State> {
  const [from, to] = intervalOf(state.times, now);
  const times = { from: from - seconds, to: to - seconds };

  return { times: { from, to }, ...comparedWith({ ...state, compare: null }, { times }) };
}

/** One value of a tag, compared with all others at the same time. */
export function withOthers(state: State, tag: string, value: string): Partial<State> {
  const all = { ...state, ...narrowed(state, tag, ''), compare: null };
  const one = narrowed(all, tag, value);

  const others = and(all.filter, [{ tag, op: '!=', values: [value] }]);

  return { ...one, ...comparedWith(all, { filter: others }) };
}

/** Whether the selections differ at most in their times. */
export const isSameAt = ({ process, filter }: State, other: Compare): boolean =>
  other.process === process && printFilter(other.filter) === printFilter(filter);

/** Each selection takes the place of the other one. */
export function swapped({ times, process, filter, compare }: State): Partial<State> {
  return compare ? { ...compare, compare: { times, process, filter } } : {};
}

export const ended = ({ colours }: State): Partial<State> => ({
  compare: null,
  grown: false,
  colours: colours === 'difference' ? 'kind' : colours,
});
