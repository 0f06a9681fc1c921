// SPDX-License-Identifier: Apache-2.0
// Conditions of a filter in words. Tags and values are inert: pods and processes choose them.
import { inert, isolated } from '../profile/names';
import type { Condition, Operator } from '../state/filter';

export const operatorWords: Record<Operator, string> = {
  '=': 'is',
  '!=': 'is not',
  IN: 'is one of',
  'NOT IN': 'is none of',
  REGEXP: 'matches',
  'NOT REGEXP': 'does not match',
};

/** Values of a list that a chip names; it counts the others. */
const MAX_NAMED = 3;
/** The most characters of a value in a chip or a list of values. */
const MAX_LENGTH = 200;

export function shown(value: string): string {
  const text = inert(value);

  return isolated(text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text);
}

export function valuesText(values: string[]): string {
  const more = values.length - MAX_NAMED;

  return (
    values.slice(0, MAX_NAMED).map(shown).join(', ') + (more > 0 ? ` and ${more} more` : '')
  );
}

/** "Pod is not web-1". */
export const conditionText = (label: string, { op, values }: Condition): string =>
  `${label} ${operatorWords[op]} ${valuesText(values)}`;
