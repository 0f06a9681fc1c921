// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { functionTable, matcher, termOf } from './table';
import { profileOf, type Tree } from './testing';

const table = (tree: Tree) =>
  functionTable(profileOf(tree)).map(({ name, self, total }) => [name, self, total]);

test('self and total; no row for a process', () => {
  assert.deepEqual(table(['p', 5, ['f', 1, ['g', 7]], ['g', 2]]), [['f', 1, 8], ['g', 9, 9]]);
});

test('functions of one name are two if their kinds differ', () => {
  assert.deepEqual(table(['p', 0, ['read', 1, ['[k] read', 2]]]), [['read', 1, 3], ['read', 2, 2]]);
});

test('a recursive function counts once in each stack', () => {
  assert.deepEqual(
    table(['p', 0, ['f', 1, ['g', 0, ['f', 2, ['f', 4]]], ['f', 8]], ['f', 16]]),
    [['f', 31, 31], ['g', 0, 6]],
  );
});

test('a term finds a part of a name, or in quotes exactly a function', () => {
  const found = (term: string) =>
    [['read', 'app'], ['Read_all', 'app'], ['read', 'process'], ['read', 'kernel'], ['a" b', 'app']]
      .filter(([name, kind]) => matcher(term)(name, kind))
      .map(([name, kind]) => `${name} ${kind}`);

  assert.deepEqual(found('READ'), ['read app', 'Read_all app', 'read process', 'read kernel']);
  assert.deepEqual(found('"read"'), ['read app', 'read kernel']);
  assert.deepEqual(found('"read" kernel'), ['read kernel']);
  assert.deepEqual(found(termOf({ name: 'a" b', kind: 'app' })), ['a" b app']);
  assert.deepEqual(found('"'), ['a" b app']);
});
