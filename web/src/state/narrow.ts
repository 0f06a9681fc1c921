// SPDX-License-Identifier: Apache-2.0
// One value of a tag, chosen or taken back, whatever else a selection says.
import { conditionsOf, selectedOf, type Selected } from './conditions';
import { and, type Condition } from './filter';
import { PROCESS } from './tags';

const isValueOf = (tag: string) => (c: Condition): boolean => c.tag === tag && c.op === '=';

/** The value that a selection requires of a tag; '': none. */
export const chosenValue = (selected: Selected, tag: string): string =>
  conditionsOf(selected).find(isValueOf(tag))?.values[0] ?? '';

/** Requires a value of a tag; '': any. Text that is not conditions is required as well. */
export function narrowed(selected: Selected, tag: string, value: string): Selected {
  const { process, filter } = selected;
  const row = conditionsOf(selected);
  const own: Condition[] = value ? [{ tag, op: '=', values: [value] }] : [];
  const at = row.findIndex(isValueOf(tag));
  const others = row.filter((c) => !isValueOf(tag)(c));

  if ('text' in filter && tag !== PROCESS) return { process, filter: and(filter, own) };
  others.splice(at < 0 ? others.length : at, 0, ...own);
  return selectedOf(others, filter);
}

/** Whether a selection has conditions on a tag that can be taken out one by one. */
export const hasTag = (selected: Selected, tag: string): boolean =>
  conditionsOf(selected).some((c) => c.tag === tag);

/** Takes out all conditions on a tag. */
export const withoutTag = (selected: Selected, tag: string): Selected =>
  selectedOf(conditionsOf(selected).filter((c) => c.tag !== tag), selected.filter);
