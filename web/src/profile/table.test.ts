// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { functionTable, matcher, problemOf, sorted, termOf, type Order } from './table';
import { differenceOf, profileOf, type Tree } from './testing';

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

test('a row of a difference has the values of both', () => {
  const rows = functionTable(
    differenceOf(
      ['p', 0, ['f', 1, ['g', 2, ['f', 4]]], ['h', 8]],
      ['p', 0, ['f', 0, ['g', 0, ['f', 3]]], ['h', 0]],
    ),
  );

  assert.deepEqual(rows.map(({ name, self, total, before }) => [name, self, total, before]), [
    ['f', 3, 3, { self: 5, total: 7, samples: 7 }],
    ['g', 0, 3, { self: 2, total: 6, samples: 6 }],
    ['h', 0, 0, { self: 8, total: 8, samples: 8 }],
  ]);
});

test('rows are sorted by a column; of equals, the greater total is first', () => {
  const rows = functionTable(profileOf(['p', 0, ['b', 1, ['a', 5]], ['c', 1, ['d', 1]]]));
  const by = (column: Order['column'], descending = true) =>
    sorted(rows, { column, descending }, (r) => (r.name === 'd' ? 7 : 0))
      .map((r) => r.name)
      .join('');

  assert.equal(by('self'), 'abcd');
  assert.equal(by('self', false), 'bcda');
  assert.equal(by('total'), 'bacd');
  assert.equal(by('difference'), 'dbac');
  assert.equal(by('name', false), 'abcd');
  assert.equal(by('name'), 'dcba');
});

const found = (term: string, ...names: string[]) =>
  names.filter((name) => matcher(term)(name, 'app'));

test('a term is a part of a name, or an expression that matches it', () => {
  assert.deepEqual(found('f(int)', 'f(int)', 'f(char)'), ['f(int)']);
  assert.deepEqual(found('^read|write$', 'read_all', 'pread', 'overwrite'), [
    'read_all', 'overwrite',
  ]);
  assert.deepEqual(found('a.c', 'abc', 'a.c', 'ac'), ['abc', 'a.c']);
  assert.deepEqual(found('x$', `${'a'.repeat(65_536)}x`), []);
  assert.deepEqual(found('ax', `${'a'.repeat(65_536)}x`).length, 1);
});

test('a term without capitals finds them, one with capitals only itself', () => {
  assert.deepEqual(found('get', 'Get', 'GET', 'get'), ['Get', 'GET', 'get']);
  assert.deepEqual(found('Get', 'Get', 'GET', 'get'), ['Get']);
  assert.deepEqual(found('^G', 'Get', 'get'), ['Get']);
  assert.deepEqual(found('^get\\W', 'Get()', 'gets'), ['Get()']);
});

test('what is no expression is sought as text, and the problem is said', () => {
  assert.deepEqual(found('main.(*Server)', 'main.(*Server).Serve', 'main.Server'), [
    'main.(*Server).Serve',
  ]);
  assert.equal(problemOf('main.(*Server)'), 'Nothing to repeat');
  assert.equal(problemOf('f('), 'Unterminated group');
  assert.deepEqual(['f()', 'f', '', '"f("', '"f(" app'].map(problemOf), ['', '', '', '', '']);
});

test('a term in quotes finds exactly a function', () => {
  const found = (term: string) =>
    [['read', 'app'], ['Read_all', 'app'], ['read', 'process'], ['read', 'kernel'], ['a" b', 'app']]
      .filter(([name, kind]) => matcher(term)(name, kind))
      .map(([name, kind]) => `${name} ${kind}`);

  assert.deepEqual(found('read'), ['read app', 'Read_all app', 'read process', 'read kernel']);
  assert.deepEqual(found('"read"'), ['read app', 'read kernel']);
  assert.deepEqual(found('"read" kernel'), ['read kernel']);
  assert.deepEqual(found(termOf({ name: 'a" b', kind: 'app' })), ['a" b app']);
  assert.deepEqual(found('"'), ['a" b app']);
});
