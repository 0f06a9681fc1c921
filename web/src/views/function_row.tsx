// SPDX-License-Identifier: Apache-2.0
// The rows of the table of functions.
import { colour, css, kinds } from '../flame/colours';
import { inert, shorten } from '../profile/names';
import type { FunctionRow, Order } from '../profile/table';
import { percent } from '../profile/values';
import type { Change } from '../state/state';
import { frameSentence } from '../words/frames';
import { columns as words } from '../words/numbers';
import { Explained } from './explained';
import type { RowChange, Shown } from './shown';

interface HeadProps {
  sort: Order;
  change: Change;
  isDifference: boolean;
}

/** A click on the title of a column sorts by it; on that of the sorted one, the other way round. */
export function Head({ sort, change, isDifference }: HeadProps) {
  const title = (column: Order['column'], text: string) => {
    const isSorted = sort.column === column;
    const descending = isSorted ? !sort.descending : column !== 'name';
    const way = sort.descending ? 'descending' : 'ascending';

    return (
      <th scope="col" aria-sort={isSorted ? way : undefined}>
        <Explained text={words[column]}>
          <button id={`sort-${column}`} onClick={() => change({ sort: { column, descending } })}>
            {text}
          </button>
        </Explained>
      </th>
    );
  };

  return (
    <thead>
      <tr aria-rowindex={1}>
        {title('name', 'Function')}
        {title('self', 'Self')}
        <th scope="col"><Explained text={words.share}>Share</Explained></th>
        {title('total', 'Total')}
        <th scope="col"><Explained text={words.share}>Share</Explained></th>
        {isDifference && title('difference', 'Difference')}
      </tr>
    </thead>
  );
}

interface RowProps {
  row: FunctionRow;
  at: number;
  isActive: boolean;
  isSelected: boolean;
  shown: Shown;
  isShort: boolean;
  onChoose: () => void;
}

export function Row({ row, at, isActive, isSelected, shown, isShort, onChoose }: RowProps) {
  const about = [
    row.name, kinds[row.kind]?.label, row.source, frameSentence(row.name, row.kind),
  ];

  return (
    <tr
      id={`row-${at}`}
      aria-rowindex={at + 2}
      aria-selected={isSelected}
      class={isActive ? 'active' : ''}
      onClick={onChoose}
    >
      <td
        title={about.flatMap((text) => (text ? inert(text) : [])).join('\n')}
        style={{ borderLeft: `6px solid ${css(colour(row.kind, row.name))}` }}
      >
        {inert(isShort ? shorten(row.name) : row.name)}
      </td>
      <td>{shown.value(row.self)}</td>
      <td>{percent(row.self, shown.total)}</td>
      <td>{shown.value(row.total)}</td>
      <td>{percent(row.total, shown.total)}</td>
      {shown.changeOf && <ChangeCell {...shown.changeOf(row)} />}
    </tr>
  );
}

export const ChangeCell = ({ short, text, isNoise }: RowChange) => (
  <td title={text} class={isNoise ? 'muted' : ''}>{isNoise ? `${short}, noise` : short}</td>
);
