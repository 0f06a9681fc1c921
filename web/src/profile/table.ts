// SPDX-License-Identifier: Apache-2.0
// The table of functions of a profile.
import { isFunction, type Columns } from './columns';

export interface FunctionRow {
  name: string;
  kind: string;
  source: string; // "file:line", "" if not known
  self: number;
  total: number;
}

/** Self and total of every function, unsorted. A recursive function counts once in each stack. */
export function functionTable({ n, fn, end, self, total, functions }: Columns): FunctionRow[] {
  const { rows, rowOf } = rowsOf(functions);
  const counted = new Uint32Array(rows.length); // its total has all of the nodes before this one
  const used = new Uint8Array(rows.length);

  for (let i = 1; i < n; i++) {
    const row = rowOf[fn[i]];

    if (row < 0) continue;
    used[row] = 1;
    rows[row].self += self[i];
    if (i < counted[row]) continue;
    rows[row].total += total[i];
    counted[row] = end[i];
  }
  return rows.filter((_, row) => used[row]);
}

/**
 * An empty row for each name and kind, whatever the module, and the row of each function; -1: it is
 * a process or a thread.
 */
function rowsOf(functions: Columns['functions']) {
  const { names, kinds } = functions;
  const rows: FunctionRow[] = [];
  const rowOf = new Int32Array(names.length).fill(-1);
  const known = new Map<string, number>();

  names.forEach((name, fn) => {
    const kind = kinds[fn];
    let row = known.get(`${kind} ${name}`);

    if (!isFunction(kind)) return;
    if (row === undefined) {
      row = rows.push({ name, kind, source: functions.source(fn), self: 0, total: 0 }) - 1;
      known.set(`${kind} ${name}`, row);
    }
    rowOf[fn] = row;
  });
  return { rows, rowOf };
}

/**
 * Whether a term finds a function. A term finds the names that it is a part of, in upper or lower
 * case; a term in quotes finds the functions of exactly that name, and of the kind behind it if
 * there is one.
 */
export function matcher(term: string): (name: string, kind: string) => boolean {
  const [, exact, only] = /^"(.+)"(?: (.+))?$/s.exec(term) ?? [];
  const part = term.toLowerCase();

  if (exact !== undefined)
    return (name, kind) => name === exact && (only ? kind === only : isFunction(kind));
  return (name) => name.toLowerCase().includes(part);
}

/** The term that finds a function. */
export const termOf = ({ name, kind }: { name: string; kind: string }): string =>
  `"${name}" ${kind}`;
