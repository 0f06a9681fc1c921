// SPDX-License-Identifier: Apache-2.0
// What of an answer is shown.
import type { Columns } from '../profile/columns';
import { growth, type Growth } from '../profile/growth';
import { functionTable, type FunctionRow } from '../profile/table';
import { leakOf } from '../state/leak';
import type { Answer } from './asker';

export interface Shown {
  answer: Answer;
  columns: Columns | null; // of the graph
  rows: FunctionRow[];
  unit: string;
  total: number;
  growth: Growth | null; // in the leak view
}

export function shownOf(answer: Answer): Shown {
  const { columns, reply, state, now } = answer;
  const grown = leakOf(state, now) && growth(columns);
  const drawn = grown ? grown.columns : columns;

  return {
    answer,
    columns: drawn,
    rows: grown ? grown.rows : columns ? functionTable(columns) : [],
    unit: reply.unit ?? 'microseconds',
    total: drawn?.total[0] ?? 0,
    growth: grown,
  };
}
