// SPDX-License-Identifier: Apache-2.0
// The functions of a profile as a table for spreadsheets (RFC 4180).
import { inert } from '../profile/names';
import type { FunctionRow } from '../profile/table';

type Cell = string | number;
/** A column: its title, and what it has of a row. */
type Column = [title: string, cell: (row: FunctionRow) => Cell];

/**
 * A text between quotes. Names come from processes, and a spreadsheet would compute a text that
 * begins as a formula does: an apostrophe makes it a text again.
 */
function quoted(text: string): string {
  const shown = inert(text);
  const isFormula = /^\s*[=+\-@＝＋－＠]/.test(shown);

  return `"${isFormula ? "'" : ''}${shown.replaceAll('"', '""')}"`;
}

const line = (cells: Cell[]): string =>
  `${cells.map((c) => (typeof c === 'string' ? quoted(c) : c)).join(',')}\r\n`;

const percent = (part: number, whole: number): number =>
  whole ? Number(((100 * part) / whole).toFixed(3)) : 0;

function valuesOf(
  of: (row: FunctionRow) => { self: number; total: number },
  whole: number,
  unit: string,
  before = '',
): Column[] {
  return [
    [`self${before} (${unit})`, (row) => of(row).self],
    [`self${before} (%)`, (row) => percent(of(row).self, whole)],
    [`total${before} (${unit})`, (row) => of(row).total],
    [`total${before} (%)`, (row) => percent(of(row).total, whole)],
  ];
}

/** What the values of a table are shares of. */
export interface Wholes {
  now: number;
  before: number; // of the other selection of a difference
}

/** The greatest self first. The rows of a difference have the values of both selections. */
export function csvOf(rows: readonly FunctionRow[], unit: string, wholes: Wholes): string {
  const sorted = [...rows].sort((a, b) => b.self - a.self || b.total - a.total);
  const columns: Column[] = [
    ['function', (row) => row.name],
    ['kind', (row) => row.kind],
    ['source', (row) => row.source],
    ...valuesOf((row) => row, wholes.now, unit),
  ];

  if (rows[0]?.before)
    columns.push(...valuesOf((row) => row.before!, wholes.before, unit, ' before'));
  return [
    line(columns.map(([title]) => title)),
    ...sorted.map((row) => line(columns.map(([, cell]) => cell(row)))),
  ].join('');
}
