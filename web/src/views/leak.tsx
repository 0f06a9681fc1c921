// SPDX-License-Identifier: Apache-2.0
// The leak view's two moments.
import { leakOf, withLeak, withoutLeak } from '../state/leak';
import type { Change, State } from '../state/state';
import { intervalOf } from '../state/times';
import { Check } from './check';
import { SpanInput } from './time_input';

interface Props {
  state: State;
  change: Change;
  now: number;
}

export function LeakChoice({ state, change, now }: Props) {
  const moments = leakOf(state, now);

  return (
    <div id="growth-choice">
      <Check
        id="growth"
        isOn={moments !== null}
        onChange={(isOn) =>
          change(
            isOn ? withLeak(state, intervalOf(state.times, now)) : withoutLeak(state, now),
          )
        }
        title="how much more memory is in use at the second time than at the first, stack by stack"
      >
        growth between two times
      </Check>
      {moments && (
        <span id="growth-times">
          <SpanInput
            id="grown_"
            span={moments}
            onChoose={(from, to) => change(withLeak(state, [from, to]))}
          />
        </span>
      )}
    </div>
  );
}
