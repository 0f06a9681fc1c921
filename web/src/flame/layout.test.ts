// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { differenceOf, outline, profileOf, type Tree } from '../profile/testing';
import { between } from './camera';
import { Layout, type Part, type View } from './layout';

const layoutOf = (tree: Tree): Layout => new Layout(profileOf(tree));
const TREE: Tree = ['p', 10, ['a', 0, ['b', 40], ['c', 20]], ['d', 20, ['e', 10]]];
const nodeOf = (l: Layout, name: string): number =>
  outline(l.columns).findIndex((line) => line.replaceAll('.', '') === name);

function visited(l: Layout, part: Part, view: View = l.viewOf(0)) {
  const found: [string, number, number][] = [];
  const deepest = l.visit(view, part, (node, rest, x, width) => {
    const name = l.columns.functions.names[l.columns.fn[node]];
    found.push([rest ? `${rest} from ${name}` : name, Math.round(x), Math.round(width)]);
  });
  return { found, deepest };
}

test('frames lie side by side below their caller', () => {
  assert.deepEqual(visited(layoutOf(TREE), { width: 100 }), {
    found: [['p', 0, 100], ['a', 0, 60], ['b', 0, 40], ['c', 40, 20], ['d', 60, 30], ['e', 60, 10]],
    deepest: 2,
  });
});

test('a frame of a difference is as wide as both selections make it, also if it is gone', () => {
  const l = new Layout(differenceOf(
    ['p', 0, ['gone', 40], ['same', 60], ['new', 0]],
    ['p', 0, ['gone', 0], ['same', 60], ['new', 40]],
  ));

  assert.deepEqual(visited(l, { width: 100 }).found, [
    ['p', 0, 100], ['same', 0, 60], ['gone', 60, 20], ['new', 80, 20],
  ]);
  assert.deepEqual(visited(l, { width: 100 }, l.viewOf(nodeOf(l, 'gone'))).found[1],
    ['gone', 0, 100]);
});

test('a frame that is zoomed to fills the width, and so do its callers', () => {
  const l = layoutOf(TREE);

  assert.deepEqual(visited(l, { width: 60 }, l.viewOf(nodeOf(l, 'd'))).found, [
    ['p', -120, 200],
    ['d', 0, 60],
    ['e', 0, 20],
  ]);
});

test('only the part that is asked for is visited', () => {
  const l = layoutOf(TREE);
  const at = (x: number, depth: number) =>
    visited(l, { width: 100, left: x, right: x, first: depth, last: depth }).found.map((f) => f[0]);

  assert.deepEqual(at(50, 2), ['c']);
  assert.deepEqual(at(40, 2), ['c']); // an edge belongs to the frame on its right
  assert.deepEqual(at(39.9, 2), ['b']);
  assert.deepEqual(at(95, 1), []); // p itself
  assert.deepEqual(at(95, 0), ['p']);
  const { found } = visited(l, { width: 100, first: 1, last: 1 });
  assert.deepEqual(found.map((f) => f[0]), ['a', 'd']);
});

test('frames that are too narrow are one, with all that they call', () => {
  const l = layoutOf(['p', 0, ['large', 900], ['s', 1, ['t', 1]], ['u', 1], ['v', 1], ['w', 96]]);
  const { found, deepest } = visited(l, { width: 200 });

  assert.deepEqual(found, [['p', 0, 200], ['large', 0, 180], ['w', 180, 19], ['4 from s', 199, 1]]);
  assert.equal(deepest, 1);
  assert.equal(l.rest(nodeOf(l, 's')), 4);
  assert.deepEqual(visited(l, { width: 200 }, l.viewOfRest(nodeOf(l, 's'))).found.slice(1), [
    ['s', 0, 100],
    ['t', 0, 50],
    ['u', 100, 50],
    ['v', 150, 50],
  ]);
});

test('the time depends on the pixels: of 100,000 narrow frames two are visited', () => {
  const wide: Tree = ['p', 0, ...Array.from({ length: 100_000 }, (): Tree => ['f', 1])];

  assert.deepEqual(visited(layoutOf(wide), { width: 1000 }).found, [
    ['p', 0, 1000],
    ['100000 from f', 0, 1000],
  ]);
});

test('a profile without a value, and a picture without a width, have no frames', () => {
  assert.deepEqual(visited(layoutOf(['p', 0]), { width: 100 }), { found: [], deepest: -1 });
  assert.deepEqual(visited(layoutOf(TREE), { width: 0 }), { found: [], deepest: -1 });
});

test('callers, siblings and the caller in common', () => {
  const l = layoutOf(TREE);
  const of = (name: string): number => nodeOf(l, name);

  assert.equal(l.common(of('b'), of('c')), of('a'));
  assert.equal(l.common(of('e'), of('c')), of('p'));
  assert.equal(l.common(of('a'), of('c')), of('a'));
  assert.equal(l.common(of('c'), of('a')), of('a'));
  assert.equal(l.sibling(of('a'), 1), of('d'));
  assert.equal(l.sibling(of('d'), -1), of('a'));
  assert.deepEqual([l.sibling(of('d'), 1), l.sibling(of('a'), -1), l.sibling(0, 1)], [-1, -1, -1]);
});

test('on the way of a zoom the width changes by equal factors, about one point', () => {
  const whole = { top: 0, from: 0, to: 100 }, part = { top: 1, from: 0, to: 1 };
  const half = between(whole, part, 0, 0.5);

  assert.ok(Math.abs(half.to - half.from - 10) < 1e-9 && Math.abs(half.from) < 1e-9);
  for (const [one, other] of [[whole, part], [part, whole], [part, { top: 2, from: 5, to: 6 }]]) {
    for (const [at, want] of [[0, one], [1, other]] as const) {
      const { from, to } = between(one, other, 0, at);
      assert.ok(Math.abs(from - want.from) < 1e-9 && Math.abs(to - want.to) < 1e-9);
    }
  }
});
