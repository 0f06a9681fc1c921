// SPDX-License-Identifier: Apache-2.0
// How long the request took, which only the tracing system knows.
import type { Change, State } from '../state/state';

export const Duration = ({ state: { durationUs }, change }: { state: State; change: Change }) => (
  <p id="request-duration">
    <label>
      The request took{' '}
      <input
        type="number"
        id="duration"
        min="0"
        step="any"
        value={durationUs === null ? '' : durationUs / 1000}
        onChange={(e) => change({ durationUs: microseconds(e.currentTarget.value) })}
      />{' '}
      ms
    </label>
  </p>
);

function microseconds(ms: string): number | null {
  const us = Math.round(1000 * Number(ms));

  return us > 0 ? us : null;
}
