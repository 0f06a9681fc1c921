// SPDX-License-Identifier: Apache-2.0
// A subtree of a profile as the whole, below its callers.
import { eachValues, type Columns, type Values } from './columns';

/** The subtree of a node below its callers, which have no other callees and no own value. */
export function focus(columns: Columns, node: number): Columns {
  const { parent, end, functions } = columns;
  const callers: number[] = [];

  for (let i = parent[node]; i >= 0; i = parent[i]) callers.push(i);
  callers.reverse();
  const n = callers.length + end[node] - node;
  const moved = node - callers.length;
  const below = <T extends Uint8Array | Uint32Array | Int32Array>(all: T): T => {
    const kept = new (all.constructor as new (n: number) => T)(n);

    callers.forEach((caller, i) => (kept[i] = all[caller]));
    kept.set(all.subarray(node, end[node]), callers.length);
    return kept;
  };
  const partOf = (values: Values): Values => part(values, node, end[node], callers.length);

  return {
    n,
    fn: below(columns.fn),
    parent: below(columns.parent).map((p, i) => (i <= callers.length ? i - 1 : p - moved)),
    depth: below(columns.depth),
    end: below(columns.end).map((e, i) => (i < callers.length ? n : e - moved)),
    inlined: below(columns.inlined),
    functions,
    ...eachValues(columns, partOf),
    before: columns.before && eachValues(columns.before, partOf),
  };
}

/** The values of the nodes [from, to), below so many callers. */
function part({ self, total }: Values, from: number, to: number, callers: number): Values {
  const kept = {
    self: new Float64Array(callers + to - from),
    total: new Float64Array(callers + to - from),
  };

  kept.self.set(self.subarray(from, to), callers);
  kept.total.fill(total[from], 0, callers);
  kept.total.set(total.subarray(from, to), callers);
  return kept;
}
