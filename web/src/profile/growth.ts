// SPDX-License-Identifier: Apache-2.0
// The leak view: two snapshots of live memory, and what has grown between them.
import { arrange, type Columns, type Functions } from './columns';
import { functionTable, type FunctionRow } from './table';

export interface Growth {
  columns: Columns | null; // growth only; null: nothing grew
  rows: FunctionRow[]; // signed: what shrank is negative
  grown: number;
  shrunk: number;
}

export function growth(before: Columns | null, after: Columns | null): Growth {
  const columns = after && more(before, after);
  const grown = columns?.total[0] ?? 0;

  return {
    columns,
    rows: differences(before ? functionTable(before) : [], after ? functionTable(after) : []),
    grown,
    shrunk: grown - ((after?.total[0] ?? 0) - (before?.total[0] ?? 0)),
  };
}

/** The stacks that have more bytes than before, with the difference. null: there are none. */
function more(before: Columns | null, after: Columns): Columns | null {
  const { n, parent } = after;
  const was = before ? counterparts(before, after) : new Int32Array(n).fill(-1);
  const self = after.self.map((now, i) => Math.max(0, now - (before?.self[was[i]] ?? 0)));
  const total = self.slice();
  const place = new Int32Array(n);
  let grew = 0;

  for (let i = n - 1; i > 0; i--) total[parent[i]] += total[i];
  for (let i = 0; i < n; i++) place[i] = total[i] > 0 ? grew++ : -1;
  const isKept = (_: unknown, i: number): boolean => place[i] >= 0;
  return grew === 0
    ? null
    : arrange({
        fn: after.fn.filter(isKept),
        parent: parent.filter(isKept).map((p) => (p < 0 ? -1 : place[p])),
        self: self.filter(isKept),
        total: total.filter(isKept),
        inlined: after.inlined.filter(isKept),
        functions: after.functions,
      });
}

/** For each node of `after` the node of `before` with the same stack; -1: there is none. */
function counterparts(before: Columns, after: Columns): Int32Array {
  const found = new Int32Array(after.n).fill(-1);
  const sameFunction = functionsIn(after.functions, before.functions);
  const childOf = new Int32Array(before.functions.names.length).fill(-1); // by function

  found[0] = 0;
  for (let i = 0; i < after.n; i++) {
    if (found[i] < 0) continue;
    eachChild(before, found[i], (child) => (childOf[before.fn[child]] = child));
    eachChild(after, i, (child) => (found[child] = childOf[sameFunction[after.fn[child]]] ?? -1));
    eachChild(before, found[i], (child) => (childOf[before.fn[child]] = -1));
  }
  return found;
}

/** For each function the one of `others` with the same name and kind; -1: there is none. */
function functionsIn(functions: Functions, others: Functions): Int32Array {
  const key = (f: Functions, fn: number): string => `${f.kinds[fn]} ${f.names[fn]}`;
  const all = new Map(others.names.map((_, fn) => [key(others, fn), fn]));

  return Int32Array.from(functions.names, (_, fn) => all.get(key(functions, fn)) ?? -1);
}

function eachChild(columns: Columns, node: number, visit: (child: number) => void): void {
  for (let i = node + 1; i < columns.end[node]; i = columns.end[i]) visit(i);
}

function differences(before: FunctionRow[], after: FunctionRow[]): FunctionRow[] {
  const rows = new Map(after.map((r) => [r.name, { ...r }]));

  for (const old of before) {
    const row = rows.get(old.name) ?? { ...old, self: 0, total: 0 };
    row.self -= old.self;
    row.total -= old.total;
    rows.set(old.name, row);
  }
  return [...rows.values()].filter((r) => r.self || r.total);
}
