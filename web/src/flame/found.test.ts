// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { profileOf } from '../profile/testing';
import { Found } from './found';

test('the sum has each stack once', () => {
  const c = profileOf(['p', 1, ['f', 2, ['g', 0, ['f', 4]]], ['h', 0, ['f', 8]], ['g', 16]]);
  const found = new Found(c, (name) => name === 'f');

  assert.equal(found.sum, 14);
  assert.ok(found.has(c.functions.names.indexOf('f')));
  assert.ok(!found.has(c.functions.names.indexOf('g')));
});

test('whether a part of the profile has something that is found', () => {
  const c = profileOf(['p', 0, ['a', 0, ['f', 9]], ['g', 1]]); // p a f g
  const found = new Found(c, (name) => name === 'f');

  assert.deepEqual(
    [[0, 4], [1, 3], [2, 3], [0, 2], [3, 4]].map(([from, to]) => found.within(from, to)),
    [true, true, true, false, false],
  );
});
