// SPDX-License-Identifier: Apache-2.0
// The flame graph of the profile, and its functions in a table below it, or beside it in a wide
// window.
import { useMemo, useState } from 'preact/hooks';
import { percent } from '../profile/values';
import { Flame } from './flame';
import { Legend } from './legend';
import type { Shown } from './shown';
import { Table } from './table';
import { usePainted } from './use_painted';
import type { ViewProps } from './view';

export function Graph(props: ViewProps) {
  const { columns, answer } = props.shown;
  const isPainted = usePainted();

  return (
    <div id="graph">
      <div>
        {columns && (
          <>
            <Legend state={props.state} change={props.change} columns={columns} />
            <MainGraph {...props} columns={columns} isProfile isPreview={answer.reply.preview} />
          </>
        )}
      </div>
      {isPainted && !answer.reply.preview && <Table {...props} />}
    </div>
  );
}

interface Props extends Pick<ViewProps, 'state' | 'change'> {
  columns: NonNullable<Shown['columns']>;
  shown: Pick<Shown, 'value' | 'changesOf'>;
  isProfile?: boolean;
  isPreview?: boolean;
}

/** The graph whose zoom is in the state, below a line that says what the user points at. */
export function MainGraph({ state, change, columns, shown, isProfile, isPreview }: Props) {
  const { value, changesOf } = shown;
  const [frame, setFrame] = useState('');
  const [found, setFound] = useState(0);
  const { search, upward } = state;
  const options = useMemo(() => ({ upward }), [upward]);
  const foundText = `found: ${value(found)} (${percent(found, columns.total[0])})`;

  return (
    <>
      <div id="details" class="muted">{frame || (search && !isPreview && foundText)}</div>
      <Flame
        id="chart"
        state={state}
        change={change}
        columns={columns}
        value={value}
        changesOf={changesOf}
        options={options}
        onSay={setFrame}
        onFound={setFound}
        isMain
        canFocus={isProfile}
        canHide={isProfile}
      />
    </>
  );
}
