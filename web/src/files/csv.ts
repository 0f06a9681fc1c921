// SPDX-License-Identifier: Apache-2.0
// The functions of a profile as a table for spreadsheets (RFC 4180).
import { inert } from '../profile/names';
import { sorted, type FunctionRow } from '../profile/table';

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

function columnsOf(
  of: (row: FunctionRow) => { self: number; total: number },
  { whole, scale = 1 }: Side,
  unit: string,
  what = '',
): Column[] {
  const measured = (value: number): number => Math.round(value / scale);

  return [
    [`self${what} (${unit})`, (row) => measured(of(row).self)],
    [`self${what} (%)`, (row) => percent(of(row).self, whole)],
    [`total${what} (${unit})`, (row) => measured(of(row).total)],
    [`total${what} (%)`, (row) => percent(of(row).total, whole)],
  ];
}

/** What a selection has. */
interface Side {
  whole: number; // what its values are shares of
  scale?: number; // from the values as they were measured, which are whole numbers
}

interface About {
  unit: string;
  now: Side;
  before: Side; // the other selection of a difference
  isGrowth: boolean; // the rows have what grew from one selection to the other
}

/** The greatest self first. The rows of a difference have the values of both selections. */
export function csvOf(rows: readonly FunctionRow[], about: About): string {
  const { unit, now, before, isGrowth } = about;
  const columns: Column[] = [
    ['function', (row) => row.name],
    ['kind', (row) => row.kind],
    ['source', (row) => row.source],
    ...columnsOf((row) => row, now, unit, isGrowth ? ' growth' : ''),
  ];

  if (rows[0]?.before) columns.push(...columnsOf((row) => row.before!, before, unit, ' before'));
  return [
    line(columns.map(([title]) => title)),
    ...sorted(rows, { column: 'self', descending: true }).map((row) =>
      line(columns.map(([, cell]) => cell(row)))),
  ].join('');
}
