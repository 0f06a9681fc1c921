// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { functionTable } from './table';
import { outline, profileOf, treeOf } from './testing';
import { fromTree } from './tree';

test('an answer without nodes is none', () => {
  assert.equal(fromTree(null), null);
});

test('depths that are not those of one tree are refused', () => {
  for (const depth of [[1, 2, 3], [0, 2, 1], [0, 1, 0]])
    assert.throws(
      () => fromTree({ ...treeOf(profileOf(['p', 0, ['f', 1], ['g', 1]])),
        nodes: { function: [0, 1, 2], depth, self: [0, 1, 1], samples: [0, 1, 1] } }),
      /not one tree/,
      `${depth}`,
    );
});

test('names, kinds, modules, sources and inlined nodes', () => {
  const c = fromTree({
    strings: ['p', 'main', 'java/lang/String::hash', '[wait: lock]', 'futex', '/bin/p', 'main.c'],
    kinds: ['root', 'app', 'jvm', 'wait', 'kernel'],
    functions: {
      name: [0, 1, 2, 3, 4],
      kind: [0, 1, 2, 3, 4],
      module: [-1, 5, -1, -1, -1],
      file: [-1, 6, -1, -1, -1],
      line: [0, 12, 0, 0, 0],
    },
    nodes: {
      function: [0, 1, 2, 3, 4], depth: [0, 1, 2, 3, 2], self: [0, 1, 0, 5, 3],
      samples: [0, 1, 0, 1, 1],
    },
    inlined: [2],
  })!;

  assert.deepEqual(outline(c), [
    'p', '.main', '..java.lang.String.hash', '...[wait: lock]', '..futex',
  ]);
  assert.deepEqual(c.functions.kinds, ['root', 'app', 'jvm', 'wait: lock', 'kernel']);
  assert.deepEqual([...c.inlined], [0, 0, 1, 0, 0]);
  assert.deepEqual([c.functions.modules[1], c.functions.modules[2]], ['/bin/p', '']);
  assert.equal(c.functions.source(1), 'main.c:12');
  assert.deepEqual([...c.self], [0, 1, 0, 5, 3]);
  assert.deepEqual([...c.total], [9, 9, 5, 5, 3]);
});

test('the hub puts the marker of smaller stacks first: it is sorted as any other child', () => {
  const c = fromTree({
    strings: ['p', 'f', 'g', '[smaller stacks]'],
    kinds: ['root', 'app', 'marker'],
    functions: {
      name: [0, 1, 2, 3], kind: [0, 1, 1, 2], module: [-1, -1, -1, -1], file: [-1, -1, -1, -1],
      line: [0, 0, 0, 0],
    },
    nodes: {
      function: [0, 3, 1, 2], depth: [0, 1, 1, 2], self: [0, 40, 60, 7], samples: [0, 0, 6, 2],
    },
    inlined: [3],
  })!;

  assert.deepEqual(outline(c), ['p', '.f', '..g', '.[smaller stacks]']);
  assert.deepEqual([...c.total], [107, 67, 7, 40]);
  assert.deepEqual([...c.inlined], [0, 0, 1, 0]);
});

test('a difference has the sums of both selections, sorted by both together', () => {
  const c = fromTree({
    strings: ['p', 'f', 'g'],
    kinds: ['root', 'app'],
    functions: {
      name: [0, 1, 2], kind: [0, 1, 1], module: [-1, -1, -1], file: [-1, -1, -1], line: [0, 0, 0],
    },
    nodes: {
      function: [0, 2, 1], depth: [0, 1, 1], self: [0, 2, 6], samples: [0, 1, 3],
      before: [0, 9, 1], before_samples: [0, 4, 2],
    },
    inlined: [],
  })!;

  assert.deepEqual(outline(c), ['p', '.g', '.f']);
  assert.deepEqual([...c.total], [8, 2, 6]);
  assert.deepEqual([...c.before!.total], [10, 9, 1]);
  assert.deepEqual([...c.samples.total], [4, 1, 3]);
  assert.deepEqual([...c.before!.samples.total], [6, 4, 2]);
});

test('the same name in two modules is two nodes and one row of the table', () => {
  const c = fromTree({
    strings: ['p', 'f', '/a', '/b'],
    kinds: ['root', 'app'],
    functions: {
      name: [0, 1, 1], kind: [0, 1, 1], module: [-1, 2, 3], file: [-1, -1, -1], line: [0, 0, 0],
    },
    nodes: { function: [0, 1, 2], depth: [0, 1, 1], self: [0, 2, 1], samples: [0, 2, 1] },
    inlined: [],
  })!;

  assert.equal(c.n, 3);
  assert.deepEqual(functionTable(c).map((r) => [r.name, r.total]), [['f', 3]]);
});

test('what treeOf() makes of a profile is that profile', () => {
  const c = profileOf(['p', 0, ['f', 1, ['[k] g', 2]], ['h', 9]]);

  assert.deepEqual(fromTree(treeOf(c)), c);
});
