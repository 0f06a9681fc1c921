// SPDX-License-Identifier: Apache-2.0
// The leak view: what has grown from one selection of live memory to the other.
import { arrange, type Columns } from './columns';
import { functionTable, type FunctionRow } from './table';

export interface Growth {
  columns: Columns | null; // growth only; null: nothing grew
  rows: FunctionRow[]; // signed: what shrank is negative
  grown: number;
  shrunk: number;
}

/** Of a difference; null: of an answer that is empty. */
export function growth(both: Columns | null): Growth {
  if (!both?.before) return { columns: null, rows: [], grown: 0, shrunk: 0 };
  const columns = grownStacks(both);
  const grown = columns?.total[0] ?? 0;

  return {
    columns,
    rows: differences(functionTable({ ...both, ...both.before }), functionTable(both)),
    grown,
    shrunk: grown - (both.total[0] - both.before.total[0]),
  };
}

/** The stacks that have more bytes than before, with the difference. null: there are none. */
function grownStacks({ n, parent, fn, inlined, functions, ...both }: Columns): Columns | null {
  const self = both.self.map((now, i) => Math.max(0, now - both.before!.self[i]));
  const total = self.slice();
  const place = new Int32Array(n);
  let grew = 0;

  for (let i = n - 1; i > 0; i--) total[parent[i]] += total[i];
  for (let i = 0; i < n; i++) place[i] = total[i] > 0 ? grew++ : -1;
  const isKept = (_: unknown, i: number): boolean => place[i] >= 0;
  return grew === 0
    ? null
    : arrange({
        fn: fn.filter(isKept),
        parent: parent.filter(isKept).map((p) => (p < 0 ? -1 : place[p])),
        self: self.filter(isKept),
        total: total.filter(isKept),
        inlined: inlined.filter(isKept),
        functions,
      });
}

/** functionTable() gives the same functions for both, in the same order. */
function differences(before: FunctionRow[], after: FunctionRow[]): FunctionRow[] {
  return after
    .map((r, i) => ({ ...r, self: r.self - before[i].self, total: r.total - before[i].total }))
    .filter((r) => r.self || r.total);
}
