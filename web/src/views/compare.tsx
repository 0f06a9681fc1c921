// SPDX-License-Identifier: Apache-2.0
// The other selection, with which the page compares.
import { isSnapshot } from '../profile/values';
import {
  comparedWith, ended, isSameAt, offsetsOf, swapped, withEarlier,
} from '../state/compare';
import { leakOf } from '../state/leak';
import type { Change, Compare, State } from '../state/state';
import { LABEL, PROCESS, tagOf } from '../state/tags';
import { absolute, intervalOf } from '../state/times';
import type { Answers, Asker } from './asker';
import { Check } from './check';
import type { Known } from './chips';
import { Choice, type Option } from './choice';
import './compare.css';
import { Conditions, mistakeBefore } from './filters';
import { LeakChoice } from './leak';
import { SpanInput } from './time_input';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
  offer: Asker['offer'];
}

const OTHER = 'other';

export function CompareChoice(props: Props) {
  const { state, change, answers: { now } } = props;
  const { compare } = state;
  const options: Option[] = [
    { value: '', text: 'nothing' },
    ...offsetsOf(state, now).map(([seconds, text]) => ({ value: `${seconds}`, text })),
    { value: OTHER, text: 'another selection' },
  ];

  return (
    <div id="compare">
      <Choice
        id="compare-with"
        label="compare with "
        value={compare ? offsetOf(state, compare, now) : ''}
        options={options}
        onChoose={(value) => change(chosen(state, value, now), 'push')}
      />
      {isSnapshot(state.event) && <LeakChoice state={state} change={change} now={now} />}
      {compare && !leakOf(state, now) && <Before {...props} compare={compare} />}
      {compare && (
        <>
          <Check
            id="grown"
            isOn={state.grown}
            onChange={(grown) => change({ grown })}
            title="only stacks that have more than before, as wide as how much more it is"
          >
            only what grew
          </Check>
          <button
            id="swap"
            title="what is before becomes now"
            onClick={() => change(swapped(state), 'push')}
          >
            swap
          </button>
        </>
      )}
    </div>
  );
}

/** By how much both selections are apart, if nothing else tells them apart. */
function offsetOf(state: State, compare: Compare, now: number): string {
  const [from, to] = intervalOf(state.times, now);
  const before = intervalOf(compare.times, now);
  const found = offsetsOf(state, now).find(([s]) => from - before[0] === s && to - before[1] === s);

  return isSameAt(state, compare) && found ? `${found[0]}` : OTHER;
}

function chosen(state: State, value: string, now: number): Partial<State> {
  if (!value) return ended(state);
  if (value !== OTHER) return withEarlier(state, Number(value), now);
  return comparedWith(state, { times: absolute(state.times, now) });
}

/** Of what is known of the values, the names of labels, which also others than these may have. */
const labelsOf = (known: Known | null): Known =>
  known?.[LABEL] ? { [LABEL]: known[LABEL] } : {};

/** Time, process and filter of the other selection. */
function Before({ state, change, answers, offer, compare }: Props & { compare: Compare }) {
  const { now, tags } = answers;
  const put = (other: Partial<Compare>): void => change(comparedWith(state, other), 'push');

  return (
    <fieldset id="before">
      <legend>before</legend>
      <div class="before-times">
        <SpanInput
          id="before_"
          span={intervalOf(compare.times, now)}
          onChoose={(from, to) => put({ times: { from, to } })}
        />
      </div>
      <Conditions
        id="before-"
        name="before_filter"
        state={{ ...state, ...compare, compare: null }}
        tags={tags}
        usual={[tagOf(tags, PROCESS)]}
        known={labelsOf(answers.choices.answer)}
        isKnown={false}
        mistake={mistakeBefore(state, answers)}
        offer={offer}
        onChange={put}
      />
    </fieldset>
  );
}
