// SPDX-License-Identifier: Apache-2.0
import type { ComponentType } from 'preact';
import type { Change, State, ViewName } from '../state/state';
import type { Answers } from './asker';
import type { Shown } from './shown';

/** What each view of a profile gets. */
export interface ViewProps {
  state: State;
  change: Change;
  shown: Shown;
  answers: Answers;
}

/** A view of a profile. */
export interface View {
  name: ViewName;
  title: string;
  component: ComponentType<ViewProps>;
  isOf?: (state: State) => boolean; // whether it can be chosen
  /** What a user can change of it: what is sought and how it is drawn; also what is folded. */
  tools: 'none' | 'look' | 'look and fold';
  /** It says itself what its answer lacks: it shows another one than the profile. */
  hasNotes?: boolean;
}
