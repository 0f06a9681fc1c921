// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { callees, callers } from './sandwich';
import { functionTable } from './table';
import { differenceOf, largeProfile, outlineWithValues, profileOf, type Tree } from './testing';

const f = { name: 'f', kind: 'app' };

test('the callers of a function lie above it, its callees below it', () => {
  const c = profileOf([
    'p', 0,
    ['[t] a', 0, ['main', 1, ['f', 2, ['g', 4]], ['h', 8, ['f', 16, ['g', 32], ['i', 64]]]]],
    ['[t] b', 0, ['h', 0, ['f', 128]]],
  ]);

  assert.deepEqual(outlineWithValues(callees(c, f)!), ['f 246 146', '.i 64 64', '.g 36 36']);
  assert.deepEqual(outlineWithValues(callers(c, f)!), [
    'f 246 0', '.h 240 0', '..b 128 128', '..main 112 0', '...a 112 112', '.main 6 0', '..a 6 6',
  ]);
});

test('a function that calls itself counts once in each stack, at its outermost call', () => {
  const c = profileOf(['p', 0, ['main', 0, ['f', 1, ['f', 2, ['g', 4, ['f', 8]]]]], ['g', 16]]);

  assert.deepEqual(outlineWithValues(callees(c, f)!), [
    'f 15 1', '.f 14 2', '..g 12 4', '...f 8 8',
  ]);
  assert.deepEqual(outlineWithValues(callers(c, f)!), ['f 15 0', '.main 15 15']);
});

test('a function of two modules is one, and one of another kind is another', () => {
  const c = profileOf(['p', 0, ['f @/a.so', 1], ['f @/b.so', 2, ['g', 4]], ['[k] f', 8]]);

  assert.deepEqual(outlineWithValues(callees(c, f)!), ['f 7 3', '.g 4 4']);
  assert.deepEqual(outlineWithValues(callers(c, f)!), ['f 7 7']);
  assert.equal(callees(c, { name: 'f', kind: 'jvm' }), null);
  assert.equal(callers(c, { name: 'f', kind: 'jvm' }), null);
});

test('samples, and both values of a difference, are carried along', () => {
  const c = differenceOf(
    ['p', 0, ['main', 1, ['f', 2, ['g', 4]]]],
    ['p', 0, ['main', 8, ['f', 16, ['g', 32]]]],
  );

  assert.deepEqual([...callees(c, f)!.before!.total], [6, 4]);
  assert.deepEqual([...callers(c, f)!.before!.total], [6, 6]);
  assert.deepEqual([...callers(c, f)!.total], [48, 48]);
  assert.deepEqual([...callers(c, f)!.samples.total], [48, 48]);
  assert.deepEqual([...callees(c, f)!.samples.total], [48, 32]);
});

test('of too many callers, the greatest go on, and a marker stands for the others', () => {
  const c = profileOf([
    'p', 0, ['a', 0, ['b', 0, ['f', 1]]], ['c', 0, ['d', 0, ['e', 0, ['f', 2]]]],
  ]);

  assert.deepEqual(outlineWithValues(callers(c, f, 10)!), [
    'f 3 0', '.e 2 0', '..d 2 0', '...[more callers] 2 2', '.b 1 0', '..[more callers] 1 1',
  ]);
});

test('of more calls than steps, only the direct callers are known', () => {
  const call = (i: number): Tree => [`a${i}`, 0, ['b', 0, ['f', 1]]];
  const c = profileOf(['p', 0, ...Array.from({ length: 12 }, (_, i) => call(i))]);

  assert.deepEqual(outlineWithValues(callers(c, f, 10)!), [
    'f 12 0', '.b 12 0', '..[more callers] 12 12',
  ]);
});

test('the totals are those of the table', () => {
  const c = largeProfile(20_000);

  for (const row of functionTable(c).slice(0, 50)) {
    assert.equal(callees(c, row)!.total[0], row.total, row.name);
    assert.equal(callers(c, row)!.total[0], row.total, row.name);
  }
});
