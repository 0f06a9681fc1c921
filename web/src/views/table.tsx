// SPDX-License-Identifier: Apache-2.0
// The functions with the greatest values, also of what shrank.
import { colour, css, kinds } from '../flame/colours';
import { inert, shorten } from '../profile/names';
import { matcher, termOf, type FunctionRow } from '../profile/table';
import { formatValue, percent } from '../profile/values';
import type { ViewProps } from './view';

const MAX_ROWS = 500;

type Key = 'self' | 'total';

export function Table({ state, change, shown }: ViewProps) {
  const key: Key = state.sort.column === 'total' ? 'total' : 'self';
  const found = greatest(shown.rows, key, state.search);
  const head = (own: Key, text: string) => (
    <th aria-sort={own === key ? 'descending' : undefined}>
      <button
        id={`sort-${own}`}
        onClick={() => change({ sort: { column: own, descending: true } })}
      >
        {text}
      </button>
    </th>
  );

  if (shown.rows.length === 0) return null;
  return (
    <>
      <table id="table">
        <thead>
          <tr>
            <th>Function</th>
            {head('self', 'Self')}
            <th>Share</th>
            {head('total', 'Total')}
            <th>Share</th>
          </tr>
        </thead>
        <tbody id="functions">
          {found.slice(0, MAX_ROWS)
            .sort((a, b) => b[key] - a[key])
            .map((row) => (
              <Row
                key={`${row.kind} ${row.name}`}
                row={row}
                shown={shown}
                isShort={state.short}
                onChoose={() => change({ search: termOf(row) })}
              />
            ))}
        </tbody>
      </table>
      {found.length > MAX_ROWS && (
        <p id="more" class="muted banner">{found.length - MAX_ROWS} more: search for them</p>
      )}
    </>
  );
}

function greatest(rows: FunctionRow[], key: Key, search: string): FunctionRow[] {
  const matches = matcher(search);

  return rows
    .filter((r) => matches(r.name, r.kind))
    .sort((a, b) => Math.abs(b[key]) - Math.abs(a[key]) || Math.abs(b.total) - Math.abs(a.total));
}

interface RowProps {
  row: FunctionRow;
  shown: ViewProps['shown'];
  isShort: boolean;
  onChoose: () => void;
}

function Row({ row, shown: { unit, total }, isShort, onChoose }: RowProps) {
  const about = [row.name, kinds[row.kind]?.label, row.source];

  return (
    <tr tabIndex={0} onClick={onChoose} onKeyDown={(e) => e.key === 'Enter' && onChoose()}>
      <td
        title={about.flatMap((text) => (text ? inert(text) : [])).join('\n')}
        style={{ borderLeft: `6px solid ${css(colour(row.kind, row.name))}` }}
      >
        {inert(isShort ? shorten(row.name) : row.name)}
      </td>
      {[row.self, row.total].map((value) => (
        <>
          <td>{formatValue(value, unit)}</td>
          <td>{percent(value, total)}</td>
        </>
      ))}
    </tr>
  );
}
