// SPDX-License-Identifier: Apache-2.0
// The leak view: two snapshots of live memory, and what has grown between them.
import { functionTable, type FunctionRow, type Node } from './profile';

export interface Growth {
  root: Node | null; // growth only; null: nothing grew
  rows: FunctionRow[]; // signed: what shrank is negative
  grown: number;
  shrunk: number;
}

export function growth(before: Node | null, after: Node | null): Growth {
  const root = after && more(before, after);
  const grown = root?.value ?? 0;

  return {
    root: grown ? root : null,
    rows: differences(before ? functionTable(before) : [], after ? functionTable(after) : []),
    grown,
    shrunk: grown - ((after?.value ?? 0) - (before?.value ?? 0)),
  };
}

/** The stacks below a node that have more bytes than before, with the difference. */
function more(before: Node | null, after: Node): Node {
  const old = new Map(before?.children.map((c) => [c.name, c]));
  const children = after.children
    .map((c) => more(old.get(c.name) ?? null, c))
    .filter((c) => c.value > 0);
  const self = Math.max(0, after.self - (before?.self ?? 0));

  return { ...after, self, value: children.reduce((sum, c) => sum + c.value, self), children };
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
