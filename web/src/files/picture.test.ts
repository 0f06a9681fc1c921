// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Box } from '../flame/flame';
import { pictureOf } from './picture';

const box = (node: number, name: string, x: number, row: number, width: number): Box => ({
  node,
  rest: 0,
  name,
  x,
  y: 18 * row,
  width,
  height: 18,
  colour: '#102030',
  textColour: '#fff',
  hatched: false,
});
const graph = (boxes: Box[]) => ({
  boxes: () => boxes,
  text: ({ node }: { node: number }) => `frame ${node}`,
});
const tower = (rows: number): Box[] =>
  Array.from({ length: rows }, (_, i) => box(i, `f${i}`, 0, i, 100));
const labels = (boxes: Box[], height?: number): string[] =>
  pictureOf(graph(boxes), '', height).frames.map((f) => f.label);

test('all frames are below the heading', () => {
  const boxes = [box(0, 'web', 0, 0, 200), box(1, 'main', 0, 1, 120.5)];
  const picture = pictureOf(graph(boxes), 'on-cpu\u202e of web');

  assert.equal(picture.heading, 'on-cpu\ufffd of web');
  assert.deepEqual([picture.width, picture.height, picture.leftOut], [200, 28 + 36, 0]);
  assert.deepEqual(picture.frames[1], {
    x: 0, y: 28 + 18, width: 120.5, height: 18, colour: '#102030', textColour: '#fff',
    hatched: false, label: 'main', title: 'frame 1',
  });
});

test('a label is as long as its frame has room', () => {
  const of = (name: string, width: number): string => labels([box(0, name, 0, 0, width)])[0];

  assert.equal(of('0123456789', 8 + 73), '0123456789');
  assert.equal(of('0123456789', 8 + 72), '01234567…');
  assert.equal(of('0123456789', 8 + 22), '01…');
  assert.equal(of('0123456789', 8 + 21), '');
  assert.equal(of('ab', 8 + 15), 'ab');
  assert.equal(of('😀'.repeat(500), 8 + 37), '😀😀😀😀…');
});

test('frames that are too narrow have their number as title', () => {
  const rest = { ...box(3, '12 smaller', 0, 1, 10), rest: 12 };

  assert.equal(pictureOf(graph([rest]), '').frames[0].title, '12 smaller frames');
});

test('of a picture that is too high, the rows near the root are kept', () => {
  const { frames, height, leftOut } = pictureOf(graph(tower(10)), '', 28 + 18 * 4 + 17);

  assert.deepEqual(frames.map((f) => f.label), ['f0', 'f1', 'f2', 'f3']);
  assert.deepEqual([height, leftOut], [28 + 18 * 4, 6]);
});

test('so are they if the root is at the bottom', () => {
  const upward = tower(10).map((b) => ({ ...b, y: 18 * 9 - b.y }));
  const { frames, leftOut } = pictureOf(graph(upward), '', 28 + 18 * 2);

  assert.deepEqual(frames.map((f) => [f.label, f.y]), [['f0', 28 + 18], ['f1', 28]]);
  assert.equal(leftOut, 8);
});

test('an empty graph is an empty picture', () => {
  assert.deepEqual(pictureOf(graph([]), 'nothing'), {
    heading: 'nothing', width: 0, height: 28, frames: [], leftOut: 0,
  });
});
