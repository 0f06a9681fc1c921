// SPDX-License-Identifier: Apache-2.0
// How the profile is shown: what is folded, and what values are divided by.
import type { Fold } from '../profile/folds';
import { canBePer } from '../profile/per';
import type { Change, State } from '../state/state';
import { columns as words } from '../words/numbers';
import { Explained } from './explained';
import './fold.css';

interface Props {
  state: State;
  change: Change;
}

const threads: Record<Fold['threads'], string> = {
  pools: 'by pool',
  each: 'each',
  none: 'none',
};
const folds = {
  recursion: {
    title: 'recursion',
    hint: 'a function that calls itself, also through one other function, is one frame',
  },
  libraries: { title: 'libraries', hint: 'frames of a library in a row are one frame' },
  runtimes: {
    title: 'runtimes',
    hint: 'frames of the Go runtime, of an interpreter or of a virtual machine are one frame',
  },
};
const pers: Record<State['per'], string> = {
  all: 'in all',
  second: 'per second',
  'cpu-second': 'per CPU second',
};

const perTexts: Record<State['per'], string> = {
  all: 'what the values are divided by',
  second: words.per_second,
  'cpu-second': words.per_cpu_second,
};

export function FoldChoice({ state, change }: Props) {
  const { fold, byLine, per, event } = state;

  return (
    <div id="fold">
      <Explained text="exec-17 and exec-4 are threads of the pool exec-N">
        <label>
          threads{' '}
          <select
            id="threads"
            value={fold.threads}
            onChange={(e) =>
              change({ fold: { ...fold, threads: e.currentTarget.value as Fold['threads'] } })
            }
          >
            {Object.entries(threads).map(([value, title]) => (
              <option key={value} value={value}>{title}</option>
            ))}
          </select>
        </label>
      </Explained>
      <fieldset>
        <legend>fold</legend>
        {(['recursion', 'libraries', 'runtimes'] as const).map((key) => (
          <Explained key={key} text={folds[key].hint}>
            <label>
              <input
                type="checkbox"
                id={`fold-${key}`}
                checked={fold[key]}
                onChange={(e) => change({ fold: { ...fold, [key]: e.currentTarget.checked } })}
              />{' '}
              {folds[key].title}
            </label>
          </Explained>
        ))}
      </fieldset>
      <Explained text="functions of one name are apart if they are declared in other files or lines">
        <label>
          <input
            type="checkbox"
            id="by-line"
            checked={byLine}
            onChange={(e) => change({ byLine: e.currentTarget.checked })}
          />{' '}
          by line
        </label>
      </Explained>
      <Explained text={perTexts[per]}>
        <label>
          values{' '}
          <select
            id="per"
            value={canBePer(event).includes(per) ? per : 'all'}
            onChange={(e) => change({ per: e.currentTarget.value as State['per'] })}
          >
            {canBePer(event).map((value) => (
              <option key={value} value={value}>{pers[value]}</option>
            ))}
          </select>
        </label>
      </Explained>
    </div>
  );
}
