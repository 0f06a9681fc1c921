// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { nodeAt, pathTo } from './path';
import { profileOf } from './testing';

test('frames of one name below one caller are told apart, whichever is greater', () => {
  const app = (read: number, kernel: number) =>
    profileOf(['p', 0, ['f', 0, ['read', read], ['[k] read', kernel]]]);
  const before = app(60, 40);
  const after = app(40, 60);
  const kindAt = (path: string[]): string =>
    after.functions.kinds[after.fn[nodeAt(after, path)]];

  assert.deepEqual(pathTo(before, 1), ['f']);
  assert.equal(kindAt(pathTo(before, 2)), 'app');
  assert.equal(kindAt(pathTo(before, 3)), 'kernel');
  assert.equal(nodeAt(before, ['f', 'gone']), -1);
  assert.equal(nodeAt(before, ['f', 'read']), 2); // of a link by hand: the greatest
});
