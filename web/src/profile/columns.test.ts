// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { arrange, Functions } from './columns';
import { outline, profileOf } from './testing';

const empty = (n: number) => ({ self: new Float64Array(n), total: new Float64Array(n) });
const none = (n: number) => ({ ...empty(n), samples: empty(n), inlined: new Uint8Array(n) });

test('nodes come in preorder: the greatest child first, then by name', () => {
  const c = profileOf(['p', 0, ['small', 1, ['x', 2]], ['b', 5], ['large', 9], ['a', 5]]);

  assert.deepEqual(outline(c), ['p', '.large', '.a', '.b', '.small', '..x']);
  assert.deepEqual([...c.parent], [-1, 0, 0, 0, 0, 4]);
  assert.deepEqual([...c.end], [6, 2, 3, 4, 6, 6]);
  assert.deepEqual([...c.total], [22, 9, 5, 5, 3, 2]);
  assert.deepEqual([...c.self], [0, 9, 5, 5, 1, 2]);
});

test('a parent may come after its children, and each node keeps what belongs to it', () => {
  const c = arrange({
    fn: Uint32Array.of(0, 1, 2),
    parent: Int32Array.of(-1, 2, 0),
    self: Float64Array.of(0, 3, 4),
    total: Float64Array.of(7, 3, 7),
    samples: { self: Float64Array.of(0, 1, 2), total: Float64Array.of(3, 1, 3) },
    inlined: Uint8Array.of(0, 1, 0),
    functions: new Functions(['p', 'leaf', 'f'], ['root', 'app', 'app'], ['', '', ''],
      ['', '', ''], new Uint32Array(3)),
  });

  assert.deepEqual(outline(c), ['p', '.f', '..leaf']);
  assert.deepEqual([...c.inlined], [0, 0, 1]);
  assert.deepEqual([...c.self], [0, 4, 3]);
  assert.deepEqual([...c.samples.self], [0, 2, 1]);
  assert.deepEqual([...c.samples.total], [3, 3, 1]);
});

test('what is not one tree is refused', () => {
  for (const parent of [[-1, 2, 1], [-1, 0, 7], [-1, -1, 0], [-1, 1, 0]])
    assert.throws(
      () =>
        arrange({
          ...none(3),
          fn: new Uint32Array(3),
          parent: Int32Array.from(parent),
          functions: new Functions(['p'], ['root'], [''], [''], new Uint32Array(1)),
        }),
      /not one tree/,
      `${parent}`,
    );
});

test('a stack of 100,000 frames, and 100,000 frames side by side', () => {
  const n = 100_000;
  const functions = new Functions(['f'], ['app'], [''], [''], new Uint32Array(1));
  const nodes = { ...none(n), fn: new Uint32Array(n), functions };
  const withParents = (parent: (i: number) => number) =>
    arrange({ ...nodes, parent: Int32Array.from({ length: n }, (_, i) => parent(i)) });
  const deep = withParents((i) => i - 1);
  const wide = withParents((i) => (i ? 0 : -1));

  assert.equal(deep.depth[n - 1], n - 1);
  assert.equal(deep.end[1], n);
  assert.equal(wide.end[0], n);
  assert.equal(wide.end[n - 2], n - 1);
});

test('where a function is defined', () => {
  const f = new Functions(['a', 'b', 'c'], [], [], ['', 'b.c', 'c.c'], Uint32Array.of(0, 0, 7));

  assert.deepEqual([0, 1, 2].map((fn) => f.source(fn)), ['', 'b.c', 'c.c:7']);
});
