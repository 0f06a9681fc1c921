// SPDX-License-Identifier: Apache-2.0
// A stack as a line of folded output.
import type { Columns } from './columns';

/**
 * "p;main;work 12": the frames from the root to a node, and its value. `isOfCallers`: the root is
 * what the others call (sandwich.ts), and comes last.
 */
export function foldedLine(
  { fn, parent, total, functions }: Columns,
  node: number,
  isOfCallers = false,
): string {
  const names: string[] = [];

  // a semicolon separates frames
  for (let i = node; i >= 0; i = parent[i])
    names.push(functions.names[fn[i]].replaceAll(';', ':').replaceAll('\n', ' '));
  return `${(isOfCallers ? names : names.reverse()).join(';')} ${total[node]}`;
}
