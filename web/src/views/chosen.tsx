// SPDX-License-Identifier: Apache-2.0
// What is left out of the profile: the functions that are hidden, stacks, and all but the subtree
// that has the focus. A click takes it back.
import { nameOfStep, nodeAt } from '../profile/path';
import { leavesIdleOut } from '../profile/idle';
import { inert } from '../profile/names';
import { percent } from '../profile/values';
import type { Change, State } from '../state/state';
import './chosen.css';
import { focusNeighbour } from './focus_neighbour';
import type { Shown } from './shown';

interface Props {
  state: State;
  change: Change;
  shown: Shown | null;
}

const LOST = ' (this profile does not have it)';

export function Chosen({ state, change, shown }: Props) {
  const { hidden, without, focus } = state;
  const withoutIdle = leavesIdleOut(state);
  const columns = shown?.columns ?? null;
  const isLost = columns !== null && nodeAt(columns, focus) < 0;
  const share = shareText(shown);

  if (!withoutIdle && [hidden, without, focus].every((all) => all.length === 0)) return null;
  return (
    <ul id="chosen" aria-label="what is left out">
      {focus.length > 0 && (
        <LeftOut
          text={`only ${nameOfStep(focus.at(-1)!)}${isLost ? LOST : ''}`}
          title={focus.map((step) => inert(nameOfStep(step))).join(' › ')}
          undo="show all again"
          onUndo={() => change({ focus: [], zoom: [] }, 'push')}
        />
      )}
      {withoutIdle && (
        <LeftOut
          text="without idle waits"
          title="waits for work, in event loops and worker pools that podflame knows"
          undo="show idle waits again"
          onUndo={() => change({ withoutIdle: false }, 'push')}
        />
      )}
      {without.map((fn) => (
        <LeftOut
          key={`stacks ${fn.kind} ${fn.name}`}
          text={`without stacks with ${fn.name}`}
          title={inert(fn.name)}
          undo={`show stacks with ${inert(fn.name)} again`}
          onUndo={() => change({ without: without.filter((other) => other !== fn) }, 'push')}
        />
      ))}
      {share && <li id="left-out-share" class="muted">{share}</li>}
      {hidden.map((fn) => (
        <LeftOut
          key={`${fn.kind} ${fn.name}`}
          text={`without ${fn.name}`}
          title={inert(fn.name)}
          undo={`show ${inert(fn.name)} again`}
          onUndo={() => change({ hidden: hidden.filter((other) => other !== fn) }, 'push')}
        />
      ))}
    </ul>
  );
}

/** What of the selection is left out with stacks; '': nothing. */
function shareText(shown: Shown | null): string {
  const all = shown?.answer.columns?.total[0] ?? 0;

  return shown?.leftOut ? `${percent(shown.leftOut, all)} of the selection is left out` : '';
}

interface LeftOutProps {
  text: string;
  title: string;
  undo: string;
  onUndo: () => void;
}

function LeftOut({ text, title, undo, onUndo }: LeftOutProps) {
  const undone = (e: Event & { currentTarget: Element }): void => {
    focusNeighbour(e.currentTarget, () => document.querySelector('#views [aria-current]'));
    onUndo();
  };

  return (
    <li class="left-out" title={title}>
      <span>{inert(text)}</span>
      <button aria-label={undo} title={undo} onClick={undone}>×</button>
    </li>
  );
}
