// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { leaveOut } from './leave_out';
import { differenceOf, largeProfile, outlineWithValues, profileOf, type Tree } from './testing';

const app = (name: string) => ({ name, kind: 'app' });
const fold = { threads: 'pools', recursion: false, libraries: true, runtimes: true } as const;
const nothing = { without: [], fold, withoutIdle: false };
const without = (tree: Tree, ...names: string[]): string[] =>
  outlineWithValues(leaveOut(profileOf(tree), { ...nothing, without: names.map(app) }));

test('without a choice a profile stays what it is', () => {
  const c = profileOf(['p', 0, ['f', 1]]);

  assert.equal(leaveOut(c, nothing), c);
  assert.equal(leaveOut(c, { ...nothing, without: [app('g')] }), c);
});

test('all stacks with a function leave, with their values', () => {
  const tree: Tree = ['p', 1, ['f', 2, ['g', 4, ['h', 8]], ['i', 16]], ['g', 32], ['h', 64]];

  assert.deepEqual(without(tree, 'g'), ['p 83 1', '.h 64 64', '.f 18 2', '..i 16 16']);
  assert.deepEqual(without(tree, 'g', 'i'), ['p 67 1', '.h 64 64', '.f 2 2']);
});

test('a caller that has nothing else leaves, too', () => {
  assert.deepEqual(without(['p', 0, ['f', 0, ['g', 1]], ['h', 2]], 'g'), ['p 2 0', '.h 2 2']);
  assert.deepEqual(without(['p', 0, ['f', 1]], 'f'), ['p 0 0']);
});

test('a function of the same name and another kind stays', () => {
  assert.deepEqual(
    without(['p', 0, ['f', 1], ['[k] f', 2]], 'f'),
    ['p 2 0', '.f 2 2'],
  );
});

test('a pool, a library and a runtime leave by the names that they are folded into', () => {
  const tree: Tree = [
    'p', 0, ['[t] exec-1', 0, ['f', 1], ['[l] read @/lib/libc.so.6', 2]],
    ['[t] exec-2', 0, ['f', 4], ['runtime.mcall', 8]], ['[t] main', 16],
  ];
  const left = (name: string, kind: string): number =>
    leaveOut(profileOf(tree), { ...nothing, without: [{ name, kind }] }).total[0];

  assert.equal(left('exec-N', 'thread'), 16);
  assert.equal(left('exec-1', 'thread'), 31 - 3);
  assert.equal(left('[libc.so.6]', 'library'), 31 - 2);
  assert.equal(left('[Go runtime]', 'library'), 31 - 8);
});

test('idle waits leave', () => {
  const c = profileOf([
    'p', 0, ['aeMain', 0, ['[l] epoll_wait', 0, ['[wait: poll]', 9], ['[wait: runqueue]', 1]]],
  ]);

  assert.deepEqual(outlineWithValues(leaveOut(c, { ...nothing, withoutIdle: true })), [
    'p 1 0', '.aeMain 1 0', '..epoll_wait 1 0', '...[wait: runqueue] 1 1',
  ]);
});

test('of a difference, both selections lose the same stacks', () => {
  const c = leaveOut(
    differenceOf(['p', 0, ['f', 1], ['g', 2]], ['p', 0, ['f', 4], ['g', 8]]),
    { ...nothing, without: [app('g')] },
  );

  assert.deepEqual([c.total[0], c.before!.total[0]], [4, 1]);
  assert.deepEqual([c.samples.total[0], c.before!.samples.total[0]], [4, 1]);
});

test('what is gone of a selection, and is still in the other one, stays', () => {
  const c = leaveOut(
    differenceOf(['p', 0, ['f', 1], ['g', 2]], ['p', 0, ['f', 0], ['g', 8]]),
    { ...nothing, without: [app('g')] },
  );

  assert.deepEqual([c.total[0], c.before!.total[0]], [0, 1]);
});

test('of a large profile, the values of the stacks without the function stay', () => {
  const c = largeProfile(100_000);
  const fn = c.functions.names.indexOf('name_of_function_7');
  const has = new Uint8Array(c.n);
  let rest = 0;

  for (let i = 0; i < c.n; i++) {
    has[i] = Number(c.fn[i] === fn || (i > 0 && has[c.parent[i]] === 1));
    if (!has[i]) rest += c.self[i];
  }
  assert.ok(rest < c.total[0]);
  assert.equal(
    leaveOut(c, { ...nothing, without: [app('name_of_function_7')] }).total[0], rest,
  );
});
