// SPDX-License-Identifier: Apache-2.0
import type { Change, State } from '../state/state';
import type { Answers } from './asker';
import type { Shown } from './shown';

/** What each view of a profile gets. */
export interface ViewProps {
  state: State;
  change: Change;
  shown: Shown;
  answers: Answers;
}
