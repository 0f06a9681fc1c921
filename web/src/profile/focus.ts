// SPDX-License-Identifier: Apache-2.0
// A subtree of a profile as the whole, below its callers; and where it is, in words that an address
// can hold.
import { eachValues, type Columns, type Values } from './columns';

/**
 * Where a node is: for each frame from below the root its name or, if a greater frame of the same
 * caller has the same name, everything that tells the two apart.
 */
export function pathTo(columns: Columns, node: number): string[] {
  const { fn, parent, functions } = columns;
  const path: string[] = [];

  for (let i = node; parent[i] >= 0; i = parent[i]) {
    const name = functions.names[fn[i]];
    path.push(child(columns, parent[i], name) === i ? name : long(columns, i));
  }
  return path.reverse();
}

/** The node at the end of a path; -1: the profile does not have it. */
export function nodeAt(columns: Columns, path: readonly string[]): number {
  let node = 0;

  for (const step of path) if (node >= 0) node = child(columns, node, step);
  return node;
}

/** The name that a step of a path begins with. */
export const nameOfStep = (step: string): string => step.split('\n')[0];

/** The greatest child that a step of a path means; -1: there is none. */
function child(columns: Columns, node: number, step: string): number {
  const { fn, end, functions } = columns;
  const isLong = step.includes('\n');

  for (let i = node + 1; i < end[node]; i = end[i])
    if (functions.names[fn[i]] === step || (isLong && long(columns, i) === step)) return i;
  return -1;
}

function long({ fn, functions }: Columns, node: number): string {
  const f = fn[node];

  return [functions.names[f], functions.kinds[f], functions.modules[f], functions.source(f)].join(
    '\n',
  );
}

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
