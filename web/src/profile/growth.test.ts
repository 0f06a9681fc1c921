// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { growth } from './growth';
import { differenceOf, outline } from './testing';

const rows = (g: ReturnType<typeof growth>) =>
  g.rows.map(({ name, self, total }) => [name, self, total]);

test('the graph has what grew, stack by stack; the table also has what shrank', () => {
  const g = growth(
    differenceOf(
      ['p', 0, ['main', 0, ['cache', 100], ['buffer', 50], ['table', 0]], ['[k] cache', 7]],
      ['p', 0, ['main', 0, ['cache', 160], ['buffer', 0], ['table', 20]], ['[k] cache', 7]],
    ),
  );

  assert.deepEqual(outline(g.columns!), ['p', '.main', '..cache', '..table']);
  assert.deepEqual([...g.columns!.total], [80, 80, 60, 20]);
  assert.deepEqual([...g.columns!.end], [4, 4, 3, 4]);
  assert.deepEqual([g.grown, g.shrunk], [80, 50]);
  assert.deepEqual(rows(g).sort(), [
    ['buffer', -50, -50],
    ['cache', 60, 60],
    ['main', 0, 30],
    ['table', 20, 20],
  ]);
  assert.ok(g.rows.every((row) => row.before === undefined));
});

test('what grew is sorted by how much it grew', () => {
  const g = growth(differenceOf(['p', 0, ['a', 100], ['b', 5]], ['p', 0, ['a', 101], ['b', 50]]));

  assert.deepEqual(outline(g.columns!), ['p', '.b', '.a']);
  assert.equal(g.columns!.before, undefined);
});

test('the same name under another caller is another stack', () => {
  const g = growth(
    differenceOf(
      ['p', 0, ['a', 0, ['f', 5]], ['b', 0, ['f', 0]]],
      ['p', 0, ['a', 0, ['f', 0]], ['b', 0, ['f', 5]]],
    ),
  );

  assert.deepEqual(outline(g.columns!), ['p', '.b', '..f']);
  assert.deepEqual([g.grown, g.shrunk], [5, 5]);
});

test('all grew, all shrank, nothing did, and an empty answer', () => {
  const none = growth(differenceOf(['p', 0, ['f', 5]], ['p', 0, ['f', 0]]));

  assert.equal(growth(differenceOf(['p', 0, ['f', 0]], ['p', 0, ['f', 5]])).grown, 5);
  assert.deepEqual([none.columns, none.shrunk, rows(none)], [null, 5, [['f', -5, -5]]]);
  assert.equal(growth(differenceOf(['p', 0, ['f', 5]], ['p', 0, ['f', 5]])).columns, null);
  assert.deepEqual(growth(null), { columns: null, rows: [], grown: 0, shrunk: 0 });
});
