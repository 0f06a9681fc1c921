// SPDX-License-Identifier: Apache-2.0
// One value of a tag, chosen or taken back, whatever else the filter says.
import { and, type Condition, type Filter } from './filter';
import type { State } from './state';
import { PROCESS } from './tags';

const isValueOf = (tag: string) => (c: Condition): boolean => c.tag === tag && c.op === '=';

/** The value that a filter requires of a tag; '': none. */
export function chosenValue({ process, filter }: State, tag: string): string {
  if (tag === PROCESS) return process;
  if ('text' in filter) return '';
  return filter.conditions.find(isValueOf(tag))?.values[0] ?? '';
}

/** Requires a value of a tag; '': any. Text that is not conditions is required as well. */
export function narrowed(state: State, tag: string, value: string): Partial<State> {
  if (tag === PROCESS) return { process: value };
  return { filter: withValue(state.filter, tag, value) };
}

function withValue(filter: Filter, tag: string, value: string): Filter {
  const condition: Condition = { tag, op: '=', values: [value] };

  if ('text' in filter) return value ? and(filter, [condition]) : filter;
  const at = filter.conditions.findIndex(isValueOf(tag));
  const conditions = filter.conditions.filter((c) => !isValueOf(tag)(c));

  if (value) conditions.splice(at < 0 ? conditions.length : at, 0, condition);
  return { conditions };
}

/** Whether the selection has conditions on a tag that can be taken out one by one. */
export const hasTag = ({ process, filter }: State, tag: string): boolean =>
  (tag === PROCESS && process !== '') ||
  ('conditions' in filter && filter.conditions.some((c) => c.tag === tag));

/** Takes out all conditions on a tag. */
export function withoutTag(state: State, tag: string): Partial<State> {
  const { process, filter } = state;

  return {
    process: tag === PROCESS ? '' : process,
    filter: 'text' in filter
      ? filter
      : { conditions: filter.conditions.filter((c) => c.tag !== tag) },
  };
}
