// SPDX-License-Identifier: Apache-2.0
// A stack as a line of folded output.
import type { Columns } from './columns';

/** "p;main;work 12": the frames from the root to a node, and its value. */
export function foldedLine({ fn, parent, total, functions }: Columns, node: number): string {
  const names: string[] = [];

  // a semicolon separates frames
  for (let i = node; i >= 0; i = parent[i])
    names.push(functions.names[fn[i]].replaceAll(';', ':').replaceAll('\n', ' '));
  return `${names.reverse().join(';')} ${total[node]}`;
}
