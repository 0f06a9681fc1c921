// SPDX-License-Identifier: Apache-2.0
import type { ComponentType } from 'preact';
import type { Change, State, ViewName } from '../state/state';
import type { Answer, Answers } from './asker';
import type { Shown } from './shown';

/** The preview that a view shows; null: it shows the whole answer. */
export const previewOf = ({ hasPreview }: View, { profile }: Answers): Answer | null =>
  hasPreview ? profile.preview : null;

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
  /** A preview of the profile is enough for a moment. */
  hasPreview?: boolean;
  /** It says itself what its answer lacks: it shows another one than the profile. */
  hasNotes?: boolean;
}
