// SPDX-License-Identifier: Apache-2.0
// The values of a tag with what they have, as bars.
import type { GroupRow } from '../profile/groups';
import { inert } from '../profile/names';
import { percent } from '../profile/values';
import { withOthers } from '../state/compare';
import { narrowed } from '../state/narrow';
import { tagOf } from '../state/tags';
import { ChangeCell } from './function_row';
import type { RowChange } from './shown';
import type { ViewProps } from './view';

interface Props extends ViewProps {
  rows: GroupRow[];
  tag: string;
  changeOf: ((row: GroupRow) => RowChange | null) | null; // of two selections
}

export function GroupTable(props: Props) {
  const { rows, tag, changeOf, state, answers: { tags } } = props;
  const greatest = Math.max(...rows.map((r) => Math.max(r.share ?? 0, r.before ?? 0)));
  const isOfFunction = state.fn !== null;

  return (
    <table id="groups" class={changeOf ? 'compared' : ''}>
      <thead>
        <tr>
          <th scope="col">{inert(tagOf(tags, tag).label)}</th>
          <th scope="col">Value</th>
          <th scope="col">Share</th>
          {state.compare && <th scope="col">Before</th>}
          {changeOf && <th scope="col">Difference</th>}
          {isOfFunction && <th scope="col" title="of what the row has in all">Of its own</th>}
          {!state.compare && (
            <th scope="col" class="group-action"><span class="unseen">Compare</span></th>
          )}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Group
            key={row.value} {...props} row={row} scale={greatest} isOfFunction={isOfFunction}
          />
        ))}
      </tbody>
    </table>
  );
}

interface GroupProps extends Props {
  row: GroupRow;
  scale: number; // the greatest share
  isOfFunction: boolean;
}

function Group({
  row, scale, isOfFunction, tag, changeOf, state, change, shown,
}: GroupProps) {
  const { value, others, amount, total, share, before } = row;
  const changed = changeOf?.(row);
  const shareText = (part: number | null): string => (part === null ? '?' : percent(part, 1));

  return (
    <tr>
      <td>
        {value
          ? (
            <button
              class="group-value"
              title="only this"
              onClick={() => change(narrowed(state, tag, value), 'push')}
            >
              {inert(value)}
            </button>
          )
          : <span class="muted">{value === null ? othersText(others) : 'without this tag'}</span>}
        <span class="group-bar" style={{ width: `${(100 * (share ?? 0)) / (scale || 1)}%` }} />
      </td>
      <td>{amount === null ? 'among the others' : shown.value(amount)}</td>
      <td>{shareText(share)}</td>
      {state.compare && <td>{value === null ? '' : shareText(before)}</td>}
      {changeOf && (changed ? <ChangeCell {...changed} /> : <td>{value === null ? '' : '?'}</td>)}
      {isOfFunction && <td>{amount === null ? '' : percent(amount, total)}</td>}
      {!state.compare && (
        <td class="group-action">
          {value && (
            <button
              title="with all others at the same time"
              onClick={() => change({ ...withOthers(state, tag, value), view: 'graph' }, 'push')}
            >
              compare
            </button>
          )}
        </td>
      )}
    </tr>
  );
}

const othersText = (others: number): string =>
  others ? `${others.toLocaleString()} others` : 'the smallest stacks';
