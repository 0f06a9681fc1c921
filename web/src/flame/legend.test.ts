// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { Functions, type Columns } from '../profile/columns';
import { differenceOf, profileOf, type Tree } from '../profile/testing';
import { legend } from './legend';

const labels = (columns: Columns, by: Parameters<typeof legend>[1]) =>
  legend(columns, by).map((m) => m.label);

/** The functions of a tree, each in its module. */
function inModules(tree: Tree, modules: string[]): Columns {
  const columns = profileOf(tree);
  const { names, kinds, files, lines } = columns.functions;

  return { ...columns, functions: new Functions(names, kinds, modules, files, lines) };
}

test('the kinds that a profile has', () => {
  assert.deepEqual(labels(profileOf(['p', 0, ['[k] read', 1]]), 'kind'), ['kernel']);
  assert.deepEqual(labels(profileOf(['p', 0, ['f', 1, ['[k] read', 1]]]), 'kind'),
    ['program', 'kernel']);
});

test('modules by their own values, then the kinds of what has none', () => {
  const c = inModules(['p', 0, ['main', 1, ['malloc', 5], ['free', 5], ['[k] read', 3]]],
    ['', '/bin/web', '/lib/libc.so.6', '/lib/libc.so.6', '']);
  const all = legend(c, 'module');

  assert.deepEqual(all.map((m) => m.label), ['libc.so.6', 'web', 'kernel']);
  assert.equal(all[0].about, '/lib/libc.so.6');
  assert.notEqual(all[0].colour, all[1].colour);
});

test('only a difference has the legend of differences', () => {
  const tree: Tree = ['p', 0, ['f', 1]];

  assert.equal(labels(differenceOf(tree, tree), 'difference')[2], 'not distinguishable from noise');
  assert.deepEqual(labels(profileOf(tree), 'difference'), ['program']);
});
