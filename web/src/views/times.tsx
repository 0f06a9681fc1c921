// SPDX-License-Identifier: Apache-2.0
// The time that the page is about.
import { leakOf, timesOf, withTimes } from '../state/leak';
import type { Change, State } from '../state/state';
import { intervalOf, ranges } from '../state/times';
import { Choice, type Option } from './choice';
import { SpanInput } from './time_input';

interface Props {
  state: State;
  change: Change;
  now: number;
}

const CUSTOM = 'custom';

export function RangeChoice({ state, change, now }: Props) {
  const { times } = state;
  const [from, to] = timesOf(state, now);
  const value = 'last' in times ? `${times.last}` : CUSTOM;
  const options: Option[] = ranges.map(([last, text]) => ({ value: `${last}`, text }));

  if ('last' in times && !options.some((o) => o.value === value))
    options.push({ value, text: `last ${times.last} s` });
  options.push({ value: CUSTOM, text: 'from … to …' });
  return (
    <Choice
      id="choice-range"
      label="Time"
      value={value}
      options={options}
      onChoose={(chosen) =>
        change(withTimes(state, chosen === CUSTOM ? { from, to } : { last: Number(chosen) }, now))
      }
    />
  );
}

export function TimeInputs({ state, change, now }: Props) {
  if ('last' in state.times || leakOf(state, now)) return null;
  return (
    <div id="custom">
      <SpanInput
        id=""
        span={intervalOf(state.times, now)}
        onChoose={(from, to) => change({ times: { from, to } })}
      />
    </div>
  );
}
