// SPDX-License-Identifier: Apache-2.0
// How long the request took, which only the tracing system knows.
import type { Change, State } from '../state/state';
import { useDraft } from './use_draft';

interface Props {
  state: State;
  change: Change;
}

export const Duration = ({ state: { durationUs }, change }: Props) => (
  <p id="request-duration">
    <label>
      The request took{' '}
      <input
        type="number"
        id="duration"
        min="0"
        step="any"
        {...useDraft(
          durationUs === null ? '' : `${durationUs / 1000}`,
          (ms) => change({ durationUs: microseconds(ms) }),
        )}
      />{' '}
      ms
    </label>
  </p>
);

function microseconds(ms: string): number | null {
  const us = Math.round(1000 * Number(ms));

  return us > 0 ? us : null;
}
