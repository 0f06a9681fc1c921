// SPDX-License-Identifier: Apache-2.0
// The functions of a profile, or those that a search finds, as a table.
import { useMemo } from 'preact/hooks';
import type { FunctionId } from '../profile/folds';
import { matcher, problemOf, sorted, termOf, type FunctionRow } from '../profile/table';
import { FunctionGrid } from './function_grid';
import type { ViewProps } from './view';

export function Table({ state, change, shown }: ViewProps) {
  const { search, sort, fn } = state;
  const all = useMemo(() => shown.rows(), [shown.rows]);
  const found = useMemo(() => foundOf(all, search, fn), [all, search, fn]);
  const rows = useMemo(() => sorted(found, sort, differenceOf), [found, sort]);
  const problem = problemOf(search);

  if (all.length === 0) return null;
  return (
    <section class="functions" aria-label="functions">
      <p class="muted" role="status">
        {rows.length === all.length ? '' : `${rows.length.toLocaleString()} of `}
        {all.length.toLocaleString()} functions
        {problem && `; the search is no regular expression (${problem}): the page seeks the text`}
      </p>
      <FunctionGrid state={state} change={change} shown={shown} rows={rows} />
    </section>
  );
}

const differenceOf = ({ total, before }: FunctionRow): number => total - (before?.total ?? 0);

/** What a search finds. The search for the selected function leaves the others in the table. */
function foundOf(rows: FunctionRow[], search: string, fn: FunctionId | null): FunctionRow[] {
  const matches = matcher(search);

  if (search === '' || (fn && search === termOf(fn))) return rows;
  return rows.filter((row) => matches(row.name, row.kind));
}
