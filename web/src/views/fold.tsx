// SPDX-License-Identifier: Apache-2.0
// How the profile is shown: what is folded, and what values are divided by.
import type { Fold } from '../profile/folds';
import { hasIdle } from '../profile/idle';
import { canBePer } from '../profile/per';
import type { Change, State } from '../state/state';
import { columns as words } from '../words/numbers';
import { Check } from './check';
import { Choice, type Option } from './choice';
import { Explained } from './explained';
import './fold.css';

interface Props {
  state: State;
  change: Change;
}

const threads: Option<Fold['threads']>[] = [
  { value: 'pools', text: 'by pool' },
  { value: 'each', text: 'each' },
  { value: 'none', text: 'none' },
];
const folds = [
  {
    key: 'recursion',
    about: 'a function that calls itself, also through one other function, is one frame',
  },
  { key: 'libraries', about: 'frames of a library in a row are one frame' },
  {
    key: 'runtimes',
    about: 'frames of the Go runtime, of an interpreter or of a virtual machine are one frame',
  },
] as const;
const pers: Record<State['per'], { text: string; about: string }> = {
  all: { text: 'in all', about: 'what the values are divided by' },
  second: { text: 'per second', about: words.per_second },
  'cpu-second': { text: 'per CPU second', about: words.per_cpu_second },
};

export function FoldChoice({ state, change }: Props) {
  const { fold, byLine, byStart, event } = state;
  const offered = canBePer(event);
  const per = offered.includes(state.per) ? state.per : 'all';

  return (
    <div id="fold">
      <Explained text="exec-17 and exec-4 are threads of the pool exec-N">
        <Choice
          id="threads"
          label="threads "
          value={fold.threads}
          options={threads}
          onChoose={(value) => change({ fold: { ...fold, threads: value } })}
        />
      </Explained>
      <fieldset>
        <legend>fold</legend>
        {folds.map(({ key, about }) => (
          <Check
            key={key}
            id={`fold-${key}`}
            isOn={fold[key]}
            onChange={(isOn) => change({ fold: { ...fold, [key]: isOn } })}
            title={about}
          >
            {key}
          </Check>
        ))}
      </fieldset>
      {hasIdle(event) && (
        <Check
          id="no-idle"
          isOn={state.withoutIdle}
          onChange={(withoutIdle) => change({ withoutIdle })}
          title="waits for work, in event loops and worker pools that podflame knows, are left out"
        >
          without idle waits
        </Check>
      )}
      <Check
        id="by-line"
        isOn={byLine}
        onChange={(isOn) => change({ byLine: isOn })}
        title="functions of one name are apart if they are declared in other files or lines"
      >
        by line
      </Check>
      <Check
        id="by-start"
        isOn={byStart}
        onChange={(isOn) => change({ byStart: isOn })}
        title="functions without a name are apart if they begin elsewhere in their file"
      >
        unnamed by start
      </Check>
      <Explained text={pers[per].about}>
        <Choice
          id="per"
          label="values "
          value={per}
          options={offered.map((value) => ({ value, text: pers[value].text }))}
          onChoose={(value) => change({ per: value })}
        />
      </Explained>
    </div>
  );
}
