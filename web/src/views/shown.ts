// SPDX-License-Identifier: Apache-2.0
// What of an answer is shown.
import { useMemo } from 'preact/hooks';
import type { Changes } from '../flame/flame';
import { changeText, differenceText } from '../profile/change';
import type { Columns } from '../profile/columns';
import { Difference, termsOf, type Change, type Terms } from '../profile/difference';
import { growth, type Growth } from '../profile/growth';
import { valueFormat } from '../profile/per';
import { leavesIdleOut } from '../profile/idle';
import { leaveOut } from '../profile/leave_out';
import { functionTable, type FunctionRow } from '../profile/table';
import { transform } from '../profile/transform';
import type { State, Times } from '../state/state';
import { intervalOf } from '../state/times';
import type { Answer } from './asker';

export interface Shown {
  answer: Answer;
  columns: Columns | null; // of the graph
  rows: () => FunctionRow[]; // made when they are first needed
  unit: string;
  total: number;
  leftOut: number; // of the value, by the stacks that are left out
  growth: Growth | null; // of a comparison of which only that is shown
  difference: Difference | null; // of a comparison that has found something
  value: (value: number) => string; // in words
  changesOf: (columns: Columns) => Changes | null; // null: they are no difference
  changeOf: ((row: FunctionRow) => RowChange) | null;
}

/** The difference of a row in words. */
export interface RowChange {
  short: string;
  text: string;
  isNoise: boolean;
}

/** The part of a state that says what of an answer is shown. */
export type Chosen = Pick<
  State, 'without' | 'withoutIdle' | 'fold' | 'hidden' | 'focus' | 'per' | 'grown'
>;

/** `cpuSeconds`: what the same selection has used; null: it is not known. */
export function useShown(
  answer: Answer | null,
  { without, withoutIdle: noIdle, fold, hidden, focus, per, grown }: Chosen,
  cpuSeconds: number | null,
): Shown | null {
  const perSecond = per === 'second';
  const withoutIdle = answer !== null && leavesIdleOut({ ...answer.state, withoutIdle: noIdle });
  const kept = useMemo(
    () => answer?.columns ? leaveOut(answer.columns, { without, fold, withoutIdle }) : null,
    [answer, without, fold, withoutIdle],
  );
  const difference = useMemo(
    () => answer && differenceOf(answer, kept, perSecond), [answer, kept, perSecond],
  );
  const made = useMemo(
    () => answer && shownOf(answer, kept, difference, { fold, hidden, focus, grown }),
    [answer, kept, difference, fold, hidden, focus, grown],
  );

  return useMemo(
    () => made && { ...made, value: formatOf(made, per, cpuSeconds) },
    [made, per, cpuSeconds],
  );
}

/** `kept`: what of the answer is not left out. */
function shownOf(
  answer: Answer,
  kept: Columns | null,
  difference: Difference | null,
  { grown: isGrown, ...chosen }: Pick<Chosen, 'fold' | 'hidden' | 'focus' | 'grown'>,
): Omit<Shown, 'value'> {
  const { reply, state } = answer;
  const unit = reply.unit ?? 'microseconds';
  const all = difference?.columns ?? kept;
  const columns = all && transform(all, chosen);
  const grown = isGrown && state.compare ? growth(columns) : null;
  const drawn = grown ? grown.columns : columns;

  return {
    answer,
    columns: drawn,
    rows: once(() => grown?.rows ?? (columns ? functionTable(columns) : [])),
    unit,
    total: drawn?.total[0] ?? 0,
    leftOut: kept ? answer.columns!.total[0] - kept.total[0] : 0,
    growth: grown,
    difference,
    changesOf: changesOf(difference, unit),
    changeOf: difference && !grown ? changeOf(difference, unit) : null,
  };
}

function once<T>(make: () => T): () => T {
  let made: T | null = null;

  return () => (made ??= make());
}

function formatOf(
  { answer: { state, now }, unit }: Omit<Shown, 'value'>,
  per: State['per'],
  cpuSeconds: number | null,
): Shown['value'] {
  const [from, to] = intervalOf(state.times, now);

  return valueFormat(state.event, unit, { per, seconds: to - from, cpuSeconds });
}

/** null: there is nothing to compare. */
function differenceOf(
  { reply, state, now }: Answer,
  columns: Columns | null,
  perSecond: boolean,
): Difference | null {
  const seconds = (times: Times): number => {
    const [from, to] = intervalOf(times, now);
    return Math.max(1, to - from);
  };

  if (!columns?.before || !state.compare) return null;
  return new Difference(
    columns,
    termsOf(
      state.event,
      perSecond,
      { seconds: seconds(state.times), error: reply.summary?.estimated?.error },
      { seconds: seconds(state.compare.times), error: reply.before_summary?.estimated?.error },
    ),
  );
}

const changesOf = (difference: Difference | null, unit: string): Shown['changesOf'] => (columns) =>
  difference && columns.before
    ? {
        of: (node) => difference.ofNode(columns, node),
        text: (change) => changeText(change, { ...difference.terms, unit }),
      }
    : null;

const changeOf = (difference: Difference, unit: string) => (row: FunctionRow): RowChange => {
  const { total: value, samples, before } = row;
  const change = difference.of(
    { value, samples },
    { value: before!.total, samples: before!.samples },
  );

  return inWords(change, difference.terms, unit);
};

export function inWords(change: Change, terms: Terms, unit: string): RowChange {
  const compared = { ...terms, unit };

  return {
    short: differenceText(change, compared),
    text: changeText(change, compared),
    isNoise: change.isNoise,
  };
}
