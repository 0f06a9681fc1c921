// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { mistakeOf } from './mistake';

test('a mistake has its place in the text, whatever stands before it', () => {
  const at = (position: number, text: string): string =>
    text.slice(mistakeOf(`tag_filter: position ${position}: wrong`, text)!.at);

  assert.equal(at(1, 'pod'), 'pod');
  assert.equal(at(5, "pod='x'"), "'x'");
  assert.equal(at(15, "pod='中😀' x"), 'x');
  assert.equal(at(4, 'pod'), '');
  assert.equal(at(99, 'pod'), '');
});

test('the reason is what the hub says; another error is no mistake in the filter', () => {
  assert.equal(mistakeOf('tag_filter: position 4: expected =,\n!=', 'pod')!.reason,
    'expected =,\n!=');
  for (const error of ['', 'it took too long', 'before: tag_filter: position 4: expected ='])
    assert.equal(mistakeOf(error, 'pod'), null);
});
