// SPDX-License-Identifier: Apache-2.0
// Where a node of a profile is, in words that an address can hold.
import type { Columns } from './columns';

/**
 * Where a node is: for each frame from below the root its name or, if another frame of the same
 * caller has the same name, everything that tells the two apart.
 */
export function pathTo(columns: Columns, node: number): string[] {
  const { fn, parent, functions } = columns;
  const path: string[] = [];

  for (let i = node; parent[i] >= 0; i = parent[i]) {
    const name = functions.names[fn[i]];
    path.push(isOnly(columns, i, name) ? name : long(columns, i));
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

function isOnly({ fn, end, parent, functions }: Columns, node: number, name: string): boolean {
  const caller = parent[node];

  for (let i = caller + 1; i < end[caller]; i = end[i])
    if (i !== node && functions.names[fn[i]] === name) return false;
  return true;
}

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
