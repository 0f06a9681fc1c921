// SPDX-License-Identifier: Apache-2.0
// One function: the flame graph of its callers above it, that of its callees below it.
import { useMemo, useState } from 'preact/hooks';
import { inert } from '../profile/names';
import { callees, callers } from '../profile/sandwich';
import { Flame } from './flame';
import { Table } from './table';
import type { ViewProps } from './view';

export function Sandwich(props: ViewProps) {
  const { state, change } = props;
  const { columns, total: whole, value, changesOf } = props.shown;
  const { fn } = state;
  const [frame, setFrame] = useState('');
  const above = useMemo(() => columns && fn && callers(columns, fn), [columns, fn]);
  const below = useMemo(() => columns && fn && callees(columns, fn), [columns, fn]);
  const graph = { state, change, value, changesOf, onSay: setFrame, canHide: true };
  const name = fn ? inert(fn.name) : '';
  const options = useMemo(
    () => ({
      above: { whole, label: `callers of ${name}`, upward: true, callers: true },
      below: { whole, label: `what ${name} calls` },
    }),
    [name, whole],
  );

  return (
    <>
      <div id="details" class="muted">{frame}</div>
      {above && below ? (
        <>
          <Flame
            {...graph}
            id="callers"
            columns={above}
            options={options.above}
          />
          <p class="muted sandwich-between">↑ who calls {name} · what it calls ↓</p>
          <Flame
            {...graph}
            id="callees"
            columns={below}
            options={options.below}
          />
        </>
      ) : (
        <p class="banner">
          {name ? `This profile does not have ${name}.` : 'Choose a function in the table.'}
        </p>
      )}
      <Table {...props} />
    </>
  );
}
