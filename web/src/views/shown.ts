// SPDX-License-Identifier: Apache-2.0
// What of an answer is shown.
import { useMemo } from 'preact/hooks';
import type { Columns } from '../profile/columns';
import { growth, type Growth } from '../profile/growth';
import { valueFormat } from '../profile/per';
import { functionTable, type FunctionRow } from '../profile/table';
import { transform } from '../profile/transform';
import { leakOf } from '../state/leak';
import type { State } from '../state/state';
import { intervalOf } from '../state/times';
import type { Answer } from './asker';

export interface Shown {
  answer: Answer;
  columns: Columns | null; // of the graph
  rows: FunctionRow[];
  unit: string;
  total: number;
  growth: Growth | null; // in the leak view
  value: (value: number) => string; // in words
}

/** The part of a state that says what of an answer is shown. */
export type Chosen = Pick<State, 'fold' | 'hidden' | 'focus' | 'per'>;

/** `cpuSeconds`: what the same selection has used; null: it is not known. */
export function useShown(
  answer: Answer | null,
  { fold, hidden, focus, per }: Chosen,
  cpuSeconds: number | null,
): Shown | null {
  const made = useMemo(
    () => answer && shownOf(answer, { fold, hidden, focus }),
    [answer, fold, hidden, focus],
  );

  return useMemo(
    () => made && { ...made, value: formatOf(made, per, cpuSeconds) },
    [made, per, cpuSeconds],
  );
}

function shownOf(answer: Answer, chosen: Omit<Chosen, 'per'>): Omit<Shown, 'value'> {
  const { reply, state, now } = answer;
  const columns = answer.columns && transform(answer.columns, chosen);
  const grown = leakOf(state, now) && growth(columns);
  const drawn = grown ? grown.columns : columns;

  return {
    answer,
    columns: drawn,
    rows: grown ? grown.rows : columns ? functionTable(columns) : [],
    unit: reply.unit ?? 'microseconds',
    total: drawn?.total[0] ?? 0,
    growth: grown,
  };
}

function formatOf(
  { answer: { state, now }, unit }: Omit<Shown, 'value'>,
  per: State['per'],
  cpuSeconds: number | null,
): Shown['value'] {
  const [from, to] = intervalOf(state.times, now);

  return valueFormat(state.event, unit, { per, seconds: to - from, cpuSeconds });
}
