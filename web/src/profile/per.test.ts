// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { canBePer, valueFormat } from './per';

const said = (event: string, unit: string, per: 'all' | 'second' | 'cpu-second', value: number) =>
  valueFormat(event, unit, { per, seconds: 60, cpuSeconds: 4 })(value);

test('CPU time per second is a number of CPUs', () => {
  assert.equal(said('on-cpu', 'microseconds', 'second', 43.8e6), '0.73 CPUs');
  assert.equal(said('on-cpu', 'microseconds', 'second', 720e6), '12.0 CPUs');
  assert.equal(said('on-cpu', 'microseconds', 'second', 60e3), '0.001 CPUs');
  assert.equal(said('on-cpu', 'microseconds', 'second', 1), '<0.001 CPUs');
  assert.equal(said('on-cpu', 'microseconds', 'second', -30e6), '−0.50 CPUs');
});

test('waits and bytes per second, and per second of CPU time', () => {
  assert.equal(said('off-cpu', 'microseconds', 'second', 90e6), '1.50 s/s');
  assert.equal(said('off-cpu', 'microseconds', 'second', 30), '0.50 µs/s');
  assert.equal(said('mem-alloc', 'bytes', 'second', 60 * 1536), '1.50 KiB/s');
  assert.equal(said('mem-alloc', 'bytes', 'cpu-second', 4 * 2 ** 20), '1.00 MiB/CPU s');
});

test('what cannot be divided is written as it is', () => {
  assert.equal(said('mem-inuse', 'bytes', 'second', 512), '512 B');
  assert.equal(said('on-cpu', 'microseconds', 'cpu-second', 4e6), '4.00 s');
  assert.equal(said('off-cpu', 'microseconds', 'all', 4e6), '4.00 s');
  assert.equal(
    valueFormat('off-cpu', 'microseconds', { per: 'cpu-second', seconds: 60, cpuSeconds: null })(
      4e6,
    ),
    '4.00 s',
  );
  assert.deepEqual(canBePer('mem-inuse'), ['all']);
  assert.deepEqual(canBePer('on-cpu'), ['all', 'second']);
});
