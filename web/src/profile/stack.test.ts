// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { foldedLine } from './stack';
import { profileOf } from './testing';

test('a stack as a line: what would end a frame or the line is replaced', () => {
  const c = profileOf(['p', 1, ['main', 2, ['a;b\nc', 4], ['d', 1]]]);

  assert.equal(foldedLine(c, 2), 'p;main;a:b c 4');
  assert.equal(foldedLine(c, 1), 'p;main 7');
  assert.equal(foldedLine(c, 0), 'p 8');
  assert.equal(foldedLine(c, 1, true), 'main;p 7');
});
