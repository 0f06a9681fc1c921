// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  absolute, Clock, intervalOf, localTime, longer, parseLast, parseTime, previous, utc,
} from './times';

test('"last" counts back from now, and a time that is shared does not', () => {
  assert.deepEqual(intervalOf({ last: 900 }, 10_000), [9100, 10_000]);
  assert.deepEqual(intervalOf({ from: 1, to: 2 }, 10_000), [1, 2]);
  assert.deepEqual(absolute({ last: 900 }, 10_000), { from: 9100, to: 10_000 });
});

test('a moment is the same in the address and in an input', () => {
  const t = Date.parse('2026-11-21T10:00:03Z') / 1000;

  assert.equal(utc(t), '2026-11-21T10:00:03Z');
  assert.equal(parseTime(utc(t)), t);
  assert.equal(parseTime(localTime(t)), t);
  assert.deepEqual(['', null, 'soon'].map(parseTime), [null, null, null]);
});

test('a time that no profile can have is none', () => {
  const texts = [
    '1969-12-31T23:59:59Z', '1970-01-01T00:00:00Z',
    '9999-12-31T23:59:59Z', '+010000-01-01T00:00:00Z',
  ];
  const lasts = ['900', '3153600000', '3153600001', '9000000000000', '0', '-1', '1.5', 'x', null];

  assert.deepEqual(texts.map(parseTime), [null, 0, 253_402_300_799, null]);
  assert.deepEqual(
    lasts.map(parseLast),
    [900, 3_153_600_000, null, null, null, null, null, null, null],
  );
});

test("now is by the hub's clock, however wrong this machine's is", () => {
  const clock = new Clock();
  const hub = Math.floor(Date.now() / 1000) + 7200;

  clock.set(hub);
  assert.ok(Math.abs(clock.now() - hub) <= 1);
});

test('a time becomes three times as long, and not later than now; another one is before it', () => {
  assert.deepEqual(longer([100, 200], 1000), [0, 300]);
  assert.deepEqual(longer([900, 1000], 1000), [700, 1000]);
  assert.deepEqual(longer([900, 1000], 1050), [750, 1050]);
  assert.deepEqual(longer([900, 1000], 500), [700, 1000]); // a clock that is behind
  assert.deepEqual(previous([900, 1000]), [800, 900]);
});
