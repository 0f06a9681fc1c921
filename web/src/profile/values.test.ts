// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { formatValue, percent, roundSteps } from './values';

test('times and sizes have three digits and a unit that fits', () => {
  const times = [0, 1, 999, 1500, 12e6, 90e6, 7200e6].map((v) => formatValue(v, 'microseconds'));
  const sizes = [0, 512, 1536, 1.5 * 2 ** 30, -1024].map((v) => formatValue(v, 'bytes'));

  assert.deepEqual(times, [
    '0 µs', '1.00 µs', '999 µs', '1.50 ms', '12.0 s', '1.50 min', '2.00 h',
  ]);
  assert.deepEqual(sizes, ['0 B', '512 B', '1.50 KiB', '1.50 GiB', '−1.00 KiB']);
});

test('what is counted has no unit', () => {
  const counts = [0, 7, 999, 1500, 2.5e6, -3, 0.5].map((v) => formatValue(v, 'goroutines'));

  assert.deepEqual(counts, ['0', '7', '999', '1.50 k', '2.50 M', '−3', '0.50']);
  assert.ok(roundSteps('objects').includes(5000));
});

test('a share of nothing is none', () => {
  assert.deepEqual([percent(1, 3), percent(-1, 4), percent(1, 0)], ['33.3 %', '−25.0 %', '0 %']);
});

test('the values of an axis are round in the unit in which they are shown', () => {
  for (const unit of ['microseconds', 'bytes']) {
    const steps = roundSteps(unit);

    assert.deepEqual(steps, [...steps].sort((a, b) => a - b));
    for (const step of steps.filter((s) => s < (unit === 'bytes' ? 2 ** 50 : 3600e9)))
      assert.match(formatValue(step, unit), /^\d+(\.[05]0?)? /);
  }
  assert.ok(roundSteps('microseconds').includes(15 * 60e6));
});
