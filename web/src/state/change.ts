// SPDX-License-Identifier: Apache-2.0
// What a change of one choice does to the others.
import { printFilter } from './filter';
import type { State } from './state';

/** What is asked of the hub: a profile of something else is shown whole. */
const asked = ['event', 'times', 'process', 'filter', 'compare'] as const;

export function changed(state: State, part: Partial<State>): State {
  const next = { ...state, ...part };

  if (asked.some((key) => key in part) && !part.zoom) next.zoom = [];
  if (!('compare' in part)) next.compare = following(state, next);
  return next;
}

/** What both selections of a comparison have in common, they keep in common. */
function following(old: State, { process, filter }: State): State['compare'] {
  const { compare } = old;

  if (!compare) return null;
  return {
    times: compare.times,
    process: compare.process === old.process ? process : compare.process,
    filter: printFilter(compare.filter) === printFilter(old.filter) ? filter : compare.filter,
  };
}

/** Whether the browser's "back" undoes a change. */
export const isStep = (part: Partial<State>): boolean =>
  'times' in part || 'view' in part || 'fn' in part;
