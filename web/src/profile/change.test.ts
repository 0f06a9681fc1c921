// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { changeText, differenceText, wholesText } from './change';
import { Difference, termsOf } from './difference';
import { differenceOf } from './testing';

const known = { by: 'share', errors: 'known', unit: 'microseconds' } as const;

test('shares', () => {
  const change = { now: 0.041, before: 0.02, error: 0.003, isNoise: false };

  assert.equal(changeText(change, known),
    'now 4.10 %, before 2.00 %: +2.10 points ± 0.30 points');
  assert.equal(changeText({ ...change, now: 0.021, isNoise: true }, known),
    'now 2.10 %, before 2.00 %: +0.10 points ± 0.30 points, not distinguishable from noise');
  assert.equal(changeText({ ...change, now: 0, before: 0.5 }, { ...known, errors: 'least' }),
    'now 0.00 %, before 50.0 %: −50.0 points ± at least 0.30 points');
  assert.equal(differenceText({ ...change, now: 0.02 }, known), '0.00 points');
});

test('values per second, and bytes', () => {
  assert.equal(
    changeText({ now: 41_000, before: 80_000, error: 2000, isNoise: false },
      { ...known, by: 'second' }),
    'now 41.0 ms per second, before 80.0 ms per second: −39.0 ms per second ± 2.00 ms per second');
  assert.equal(
    changeText({ now: 3 << 20, before: 1 << 20, error: null, isNoise: false },
      { by: 'value', errors: 'none', unit: 'bytes' }),
    'now 3.00 MiB, before 1.00 MiB: +2.00 MiB');
});

test('what is the same, and what has nothing to be compared with', () => {
  const bytes = { by: 'value', errors: 'none', unit: 'bytes' } as const;

  assert.equal(changeText({ now: 1024, before: 1024, error: null, isNoise: true }, bytes),
    'now 1.00 KiB, before 1.00 KiB: 0 B, no difference');
  assert.equal(changeText({ now: 0.5, before: 0, error: null, isNoise: true }, known),
    'now 50.0 %, before 0.00 %: +50.0 points, but one selection has nothing to compare with');
});

test('the wholes of both selections', () => {
  const text = (
    before: number, now: number, seconds = 900, event = 'on-cpu', isSame = true,
  ) =>
    wholesText(
      new Difference(differenceOf(['p', before], ['p', now]),
        termsOf(event, false, { seconds: 900 }, { seconds })),
      event === 'on-cpu' ? 'microseconds' : 'bytes',
      isSame,
    );

  assert.equal(text(12.3e6, 15.1e6), '12.3 s before, 15.1 s now: +23 %');
  assert.equal(text(10e6, 9.5e6), '10.0 s before, 9.50 s now: −5.0 %');
  assert.equal(text(10e6, 10e6), '10.0 s before, 10.0 s now: as much');
  assert.equal(text(1e6, 25e6), '1.00 s before, 25.0 s now: 25 times as much');
  assert.equal(text(0, 25e6), '0 µs before, 25.0 s now');
  assert.equal(text(10e6, 9e6, 900, 'on-cpu', false), '10.0 s before, 9.00 s now'); // one of two
  assert.equal(text(40e6, 12e6, 3600),
    '40.0 s before (in 1.00 h), 12.0 s now (in 15.0 min): +20 % per second');
  assert.equal(text(1024, 2048, 60, 'mem-inuse'), '1.00 KiB before, 2.00 KiB now: +100 %');
});
