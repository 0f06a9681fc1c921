// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { growth } from './growth';
import { outline, profileOf } from './testing';

const rows = (g: ReturnType<typeof growth>) =>
  g.rows.map(({ name, self, total }) => [name, self, total]);

test('the graph has what grew, stack by stack; the table also has what shrank', () => {
  const g = growth(
    profileOf(['p', 0, ['main', 0, ['cache', 100], ['buffer', 50]], ['[k] cache', 7]]),
    profileOf(['p', 0, ['[k] cache', 7], ['main', 0, ['table', 20], ['cache', 160]]]),
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
});

test('the same name under another caller is another stack', () => {
  const g = growth(
    profileOf(['p', 0, ['a', 0, ['f', 5]]]),
    profileOf(['p', 0, ['b', 0, ['f', 5]]]),
  );

  assert.deepEqual(outline(g.columns!), ['p', '.b', '..f']);
  assert.deepEqual([g.grown, g.shrunk], [5, 5]);
});

test('a function that a caller calls newly is new there, even if others have called it', () => {
  const g = growth(
    profileOf(['p', 0, ['a', 9, ['f', 5]], ['b', 3]]),
    profileOf(['p', 0, ['a', 9, ['f', 5]], ['b', 3, ['f', 5]]]),
  );

  assert.deepEqual(outline(g.columns!), ['p', '.b', '..f']);
  assert.equal(g.grown, 5);
});

test('without one of the times all grew, or all shrank', () => {
  const one = profileOf(['p', 0, ['f', 5]]);

  assert.equal(growth(null, one).grown, 5);
  assert.deepEqual([growth(one, null).columns, growth(one, null).shrunk], [null, 5]);
  assert.deepEqual(rows(growth(one, null)), [['f', -5, -5]]);
  assert.equal(growth(one, one).columns, null);
  assert.deepEqual(growth(null, null), { columns: null, rows: [], grown: 0, shrunk: 0 });
});
