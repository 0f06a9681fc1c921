// SPDX-License-Identifier: Apache-2.0
// The table of functions of a profile, and which of them a term of a search finds.
import { isFunction, type Columns, type Measured } from './columns';

/** What a selection has of a function. */
interface Sums {
  self: number;
  total: number;
  samples: number; // of the total
}

export interface FunctionRow extends Sums {
  name: string;
  kind: string;
  source: string; // "file:line", "" if not known
  before?: Sums; // of a difference: those of the other selection
}

/** How the rows are sorted. */
export interface Order {
  column: 'self' | 'total' | 'difference' | 'name';
  descending: boolean;
}

/** Self and total of every function, unsorted. A recursive function counts once in each stack. */
export function functionTable(columns: Columns): FunctionRow[] {
  const { n, fn, end, before, functions } = columns;
  const { rows, rowOf } = rowsOf(functions, before !== undefined);
  const counted = new Uint32Array(rows.length); // its total has all of the nodes before this one
  const used = new Uint8Array(rows.length);

  for (let i = 1; i < n; i++) {
    const row = rowOf[fn[i]];

    if (row < 0) continue;
    const isOutermost = i >= counted[row];
    used[row] = 1;
    add(rows[row], columns, i, isOutermost);
    if (before) add(rows[row].before!, before, i, isOutermost);
    if (isOutermost) counted[row] = end[i];
  }
  return rows.filter((_, row) => used[row]);
}

function add(sums: Sums, of: Measured, node: number, isOutermost: boolean): void {
  sums.self += of.self[node];
  if (!isOutermost) return;
  sums.total += of.total[node];
  sums.samples += of.samples.total[node];
}

const nothing: Sums = { self: 0, total: 0, samples: 0 };

/**
 * An empty row for each name and kind, whatever the module, and the row of each function; -1: it is
 * a process or a thread.
 */
function rowsOf(functions: Columns['functions'], isDifference: boolean) {
  const { names, kinds } = functions;
  const rows: FunctionRow[] = [];
  const rowOf = new Int32Array(names.length).fill(-1);
  const known = new Map<string, number>();

  names.forEach((name, fn) => {
    const kind = kinds[fn];
    let row = known.get(`${kind} ${name}`);

    if (!isFunction(kind)) return;
    if (row === undefined) {
      row = rows.push({ name, kind, source: functions.source(fn), ...nothing }) - 1;
      if (isDifference) rows[row].before = { ...nothing };
      known.set(`${kind} ${name}`, row);
    }
    rowOf[fn] = row;
  });
  return { rows, rowOf };
}

/** Rows in an order. Of equals, the greater total comes first. */
export function sorted(
  rows: readonly FunctionRow[],
  { column, descending }: Order,
  difference: (row: FunctionRow) => number = () => 0,
): FunctionRow[] {
  const way = descending ? -1 : 1;
  const byName = (a: FunctionRow, b: FunctionRow): number =>
    Number(a.name > b.name) - Number(a.name < b.name);
  const byColumn: Record<Order['column'], (a: FunctionRow, b: FunctionRow) => number> = {
    self: (a, b) => a.self - b.self,
    total: (a, b) => a.total - b.total,
    difference: (a, b) => difference(a) - difference(b),
    name: byName,
  };

  return [...rows].sort(
    (a, b) => way * byColumn[column](a, b) || b.total - a.total || byName(a, b),
  );
}

/** How many characters of a name an expression sees: it may take long for a name of 64 KiB. */
const MAX_SEARCHED = 1000;

/**
 * Whether a term finds a function. A term finds the names that it is a part of, and those that it
 * matches as a regular expression; without a capital letter, it finds them in capitals, too. A
 * term in quotes finds the functions of exactly that name, and of the kind behind it if there is
 * one.
 */
export function matcher(term: string): (name: string, kind: string) => boolean {
  const [, exact, only] = /^"(.+)"(?: (.+))?$/s.exec(term) ?? [];
  const expression = expressionOf(term);
  const isPart = hasCapitals(term)
    ? (name: string) => name.includes(term)
    : (name: string) => name.toLowerCase().includes(term);

  if (exact !== undefined)
    return (name, kind) => name === exact && (only ? kind === only : isFunction(kind));
  if (typeof expression === 'string') return isPart;
  return (name) => isPart(name) || expression.test(name.slice(0, MAX_SEARCHED));
}

/** Why a term is no regular expression; '': it is one, or is in quotes. */
export function problemOf(term: string): string {
  const expression = expressionOf(term);

  return typeof expression === 'string' && !/^".+"/s.test(term) ? expression : '';
}

function expressionOf(term: string): RegExp | string {
  try {
    return new RegExp(term, hasCapitals(term) ? '' : 'i');
  } catch (e) {
    return String((e as Error).message).replace(/^.*: /s, '');
  }
}

/** Whether a term has a capital letter that stands for itself: that of `\W` does not. */
const hasCapitals = (term: string): boolean => /\p{Lu}/u.test(term.replace(/\\./gs, ''));

/** The term that finds a function. */
export const termOf = ({ name, kind }: { name: string; kind: string }): string =>
  `"${name}" ${kind}`;
