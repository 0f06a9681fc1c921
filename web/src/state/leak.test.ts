// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { leakOf, timesOf, withEvent, withLeak, withoutLeak, withTimes, zoomedOut } from './leak';
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

test('another time of the leak view is that between its moments', () => {
  const leak = { ...live, ...withLeak(live, [1000, 5000]) };
  const later = { ...leak, ...withTimes(leak, { from: 2000, to: 3000 }, NOW) };
  const hour = { ...leak, ...withTimes(leak, { last: 3600 }, NOW) };

  assert.deepEqual(leakOf(later, NOW), [2000, 3000]);
  assert.deepEqual(leakOf(hour, NOW), [NOW - 3600, NOW]);
  assert.deepEqual(leakOf({ ...leak, ...zoomedOut(leak, NOW) }, NOW), [-3000, 9000]);
  assert.deepEqual(withTimes(live, { last: 3600 }, NOW), { times: { last: 3600 } });
});

test('zooming out takes three times as long a time, also if it ends now', () => {
  const { times } = zoomedOut({ ...defaults, times: { last: 100 } }, NOW);

  assert.deepEqual(times, { from: NOW - 300, to: NOW });
  assert.deepEqual(timesOf({ ...defaults, times: times! }, NOW), [NOW - 300, NOW]);
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
