// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { leakOf, withEvent, withLeak, withoutLeak } from './leak';
import { defaults, type State } from './state';

const NOW = 1_800_000_000;
const live: State = { ...defaults, event: 'mem-inuse', process: 'web' };

test('the leak view compares two snapshots, and leaves the time between them', () => {
  const leak = { ...live, ...withLeak(live, [1000, 5000]) };

  assert.equal(leakOf(live, NOW), null);
  assert.deepEqual(leakOf(leak, NOW), [1000, 5000]);
  assert.equal(leak.compare?.process, 'web');
  assert.equal(leak.grown, true);
  assert.deepEqual(withoutLeak(leak, NOW), {
    times: { from: 1000, to: 5000 },
    compare: null,
    grown: false,
  });
});

test('an event that is not of live memory has no leak view', () => {
  const leak = { ...live, ...withLeak(live, [1000, 5000]) };

  assert.deepEqual(withEvent(leak, 'hbm-inuse', NOW), { event: 'hbm-inuse' });
  assert.deepEqual(withEvent(leak, 'on-cpu', NOW), {
    event: 'on-cpu',
    times: { from: 1000, to: 5000 },
    compare: null,
    grown: false,
  });
});
