// SPDX-License-Identifier: Apache-2.0
// What is left out of the profile: the functions that are hidden, and all but the subtree that has
// the focus. A click takes it back.
import { nameOfStep, nodeAt } from '../profile/path';
import type { Columns } from '../profile/columns';
import { inert } from '../profile/names';
import type { Change, State } from '../state/state';
import './chosen.css';
import { focusNeighbour } from './focus_neighbour';

interface Props {
  state: State;
  change: Change;
  columns: Columns | null; // what is shown
}

const LOST = ' (this profile does not have it)';

export function Chosen({ state: { hidden, focus }, change, columns }: Props) {
  const isLost = columns !== null && nodeAt(columns, focus) < 0;

  if (hidden.length === 0 && focus.length === 0) return null;
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
