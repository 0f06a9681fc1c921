// SPDX-License-Identifier: Apache-2.0
// The leak view: what has grown from one selection of live memory to the other.
import { arrange, valuesOf, type Columns, type Values } from './columns';
import { functionTable, type FunctionRow } from './table';

export interface Growth {
  columns: Columns | null; // growth only; null: nothing grew
  rows: FunctionRow[]; // differences: what shrank is negative
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
  const { self, total } = increase(both, both.before!, parent);
  const samples = increase(both.samples, both.before!.samples, parent);
  const place = new Int32Array(n);
  let grew = 0;

  for (let i = 0; i < n; i++) place[i] = total[i] > 0 ? grew++ : -1;
  const isKept = (_: unknown, i: number): boolean => place[i] >= 0;
  const kept = (values: Values): Values => ({
    self: values.self.filter(isKept),
    total: values.total.filter(isKept),
  });
  return grew === 0
    ? null
    : arrange({
        fn: fn.filter(isKept),
        parent: parent.filter(isKept).map((p) => (p < 0 ? -1 : place[p])),
        ...kept({ self, total }),
        samples: kept(samples),
        inlined: inlined.filter(isKept),
        functions,
      });
}

/** How much more the nodes have themselves than before. What is less does not count. */
function increase(now: Values, before: Values, parent: Int32Array): Values {
  const self = now.self.map((value, i) => Math.max(0, value - before.self[i]));

  return valuesOf(self, parent);
}

/** functionTable() gives the same functions for both, in the same order. */
function differences(before: FunctionRow[], after: FunctionRow[]): FunctionRow[] {
  return after
    .map((r, i) => ({
      ...r,
      self: r.self - before[i].self,
      total: r.total - before[i].total,
      before: undefined,
    }))
    .filter((r) => r.self || r.total);
}
