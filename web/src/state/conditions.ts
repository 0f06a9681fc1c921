// SPDX-License-Identifier: Apache-2.0
// The conditions of a selection as a row that a user edits one by one. A chosen process, which is
// no part of the filter, is the first of them.
import {
  isList, printContains, printFilter, printWith, type Condition, type Filter, type Operator,
} from './filter';
import type { State } from './state';
import { isOfEvent, PROCESS, tagOf, type Tag } from './tags';

/** What a row of conditions is made of. */
export type Selected = Pick<State, 'process' | 'filter'>;

/** A place in the row: a condition, or a tag that has none. */
export interface Slot {
  tag: string;
  at: number; // of the condition, or of a new one
  condition: Condition | null;
}

/** Of a filter that only text can say: none. */
const ofFilter = (filter: Filter): Condition[] => ('conditions' in filter ? filter.conditions : []);

export const conditionsOf = ({ process, filter }: Selected): Condition[] => [
  ...(process ? [{ tag: PROCESS, op: '=' as const, values: [process] }] : []),
  ...ofFilter(filter),
];

/** Whether the process of a selection can say it. */
const isProcess = ({ tag, op, values: [value] }: Condition): boolean =>
  tag === PROCESS && op === '=' && value !== '';

/**
 * The selection of a row of conditions. The first one that is a process is the process of the
 * selection. A filter that only text can say stays.
 */
export function selectedOf(row: Condition[], filter: Filter): Selected {
  const process = row.find(isProcess);

  return {
    process: process?.values[0] ?? '',
    filter: 'text' in filter ? filter : { conditions: row.filter((c) => c !== process) },
  };
}

/** Another condition in the place of one; null: none. Behind the last place, it is a new one. */
export function withCondition(selected: Selected, at: number, next: Condition | null): Selected {
  const row = conditionsOf(selected);

  row.splice(at, 1, ...(next ? [next] : []));
  return selectedOf(row, selected.filter);
}

/** Whether an event has the tag of a condition: else the condition waits for another event. */
const isAsked = (tags: Tag[], event: string) => ({ tag }: Condition): boolean =>
  isOfEvent(tagOf(tags, tag), event);

/** The part of a filter that the hub is asked for an event. */
export function askedOf(filter: Filter, tags: Tag[], event: string): Filter {
  if ('text' in filter) return filter;
  return { conditions: filter.conditions.filter(isAsked(tags, event)) };
}

/** Another filter in the place of the part that the hub is asked. */
export function withAsked(old: Filter, tags: Tag[], event: string, asked: Filter): Filter {
  const waiting = ofFilter(old).filter((c) => !isAsked(tags, event)(c));

  return 'text' in asked ? asked : { conditions: [...asked.conditions, ...waiting] };
}

/** The usual tags in their order, each with its conditions; then the conditions on others. */
export function slotsOf(conditions: Condition[], usual: string[]): Slot[] {
  const taken: Slot[] = conditions.map((condition, at) => ({ tag: condition.tag, at, condition }));
  const ofTag = (tag: string): Slot[] => {
    const own = taken.filter((s) => s.tag === tag);
    return own.length ? own : [{ tag, at: conditions.length, condition: null }];
  };

  return [...usual.flatMap(ofTag), ...taken.filter((s) => !usual.includes(s.tag))];
}

/** The values of a condition with another operator. */
export const valuesFor = (op: Operator, values: string[]): string[] =>
  isList(op) ? values : values.slice(0, 1);

/**
 * The selection whose values of a tag are offered: the other conditions, and what the user has
 * typed of a value (of a regular expression, if the operator takes one).
 */
export function offeredBy(
  { process, filter }: Selected,
  tag: string,
  op: Operator,
  typed: string,
): { app_service: string; tag_filter: string } {
  const others = 'text' in filter
    ? filter
    : { conditions: filter.conditions.filter((c) => c.tag !== tag) };
  const own = op === 'REGEXP' || op === 'NOT REGEXP'
    ? printFilter({ conditions: [{ tag, op: 'REGEXP', values: [typed] }] })
    : printContains(tag, typed);

  return {
    app_service: tag === PROCESS ? '' : process,
    tag_filter: printWith(others, typed && own),
  };
}
