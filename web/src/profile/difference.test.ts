// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { arrange, type Columns, type Measured } from './columns';
import { Difference, termsOf, type Terms } from './difference';
import { differenceOf, outline, randomNumbers } from './testing';

const hour = { seconds: 3600 };
const shares = termsOf('on-cpu', false, hour, hour);

/** Two selections of functions below p: [samples before, samples now]. */
const flat = (functions: Record<string, [before: number, now: number]>): Columns =>
  differenceOf(
    ['p', 0, ...Object.entries(functions).map(([f, [n]]): [string, number] => [f, n])],
    ['p', 0, ...Object.entries(functions).map(([f, [, n]]): [string, number] => [f, n])],
  );

const nodeOf = ({ fn, functions }: Columns, name: string): number =>
  [...fn].findIndex((f) => functions.names[f] === name);

const changeOf = (columns: Columns, name: string, terms = shares) => {
  const difference = new Difference(columns, terms);

  return difference.ofNode(difference.columns, nodeOf(difference.columns, name));
};

const close = (is: number | null, want: number): void =>
  assert.ok(Math.abs(is! - want) <= 1e-4 * Math.abs(want), `${is}, not ${want}`);

/** Each sample of a part stands for so much. */
function weighted(columns: Columns, now: number, before: number): Columns {
  const times = (m: Measured, w: number): Measured => ({
    self: m.self.map((v) => v * w),
    total: m.total.map((v) => v * w),
    samples: m.samples,
  });

  return arrange({ ...columns, ...times(columns, now), before: times(columns.before!, before) });
}

test('shares of each whole, and the error of their difference', () => {
  const of = (f: [number, number]) => changeOf(flat({ f, g: [1000 - f[0], 1000 - f[1]] }), 'f');

  // pooled s: 0.075; sqrt(s (1 - s) 2 / 1000)
  assert.deepEqual([of([60, 90]).before, of([60, 90]).now], [0.06, 0.09]);
  close(of([60, 90]).error, 0.0117792);
  assert.equal(of([60, 90]).isNoise, true); // 2.5 errors
  assert.equal(of([60, 110]).isNoise, false); // 4 errors
  assert.equal(of([110, 60]).isNoise, false);
});

test('a selection that is ten times as large has the same shares', () => {
  const c = flat({ f: [100, 1000], g: [900, 9000] });
  const f = changeOf(c, 'f');

  assert.deepEqual([f.before, f.now, f.isNoise], [0.1, 0.1, true]);
  close(f.error, Math.sqrt(0.09 / 1000 + 0.09 / 10_000));
  assert.deepEqual(new Difference(c, shares).wholes, { before: 1000, now: 10_000 });
});

test('what is new or has vanished needs some samples not to be noise', () => {
  const of = (before: number, now: number) =>
    changeOf(flat({ f: [before, now], g: [1e5, 1e5] }), 'f').isNoise;

  // eleven heads of eleven coins: one of 1024
  assert.deepEqual([of(0, 4), of(0, 9), of(0, 11)], [true, true, false]);
  assert.deepEqual([of(9, 0), of(11, 0), of(0, 0)], [true, false, true]);
  // three in a tenth of the time: 3 of 6 where one of 11 is due, which chance does once in 80
  assert.equal(changeOf(flat({ f: [3, 3], g: [1e6, 1e5] }), 'f').isNoise, true);
});

test('what a sample stands for does not change what is noise', () => {
  const c = flat({ f: [60, 110], g: [940, 890] });

  for (const [now, before] of [[1, 1], [10_101, 10_101], [10_101, 20_202]]) {
    const f = changeOf(weighted(c, now, before), 'f');
    close(f.now, 0.11);
    close(f.before, 0.06);
    close(f.error, 0.0124724);
  }
});

test('processes are sampled at different rates: a part has the error of its samples', () => {
  // g has a tenth of the samples, each of which stands for ten times as much
  const c = flat({ f: [5000, 5000], g: [500, 500] });
  const isG = nodeOf(c, 'g');
  const wide = (m: Measured): Measured => {
    const self = m.self.map((v, i) => (i === isG ? 10 * v : v));
    return { self, total: self.map((v, i) => (i ? v : 10_000)), samples: m.samples };
  };
  const g = changeOf(arrange({ ...c, ...wide(c), before: wide(c.before!) }), 'g');

  // s (1 - s) ((1 - s) 10 + s 10,000 / 5500) / 10,000 each
  assert.equal(g.now, 0.5);
  close(g.error, Math.sqrt((2 * 0.25 * (5 + 0.5 / 0.55)) / 10_000));
});

test('values per second: of selections of different lengths, and of one that has nothing', () => {
  const terms = termsOf('on-cpu', true, { seconds: 100 }, { seconds: 400 });
  const f = changeOf(flat({ f: [400, 250], g: [0, 0] }), 'f', terms);

  assert.deepEqual([f.before, f.now, f.isNoise], [1, 2.5, false]);
  // pooled: 650 in 500 s; of 1.3 a second in 100 s and in 400 s
  close(f.error, Math.sqrt(1.3 / 100 + 1.3 / 400));
  assert.equal(changeOf(flat({ f: [0, 50], g: [0, 0] }), 'f', terms).isNoise, false);
  assert.equal(changeOf(flat({ f: [0, 3], g: [0, 0] }), 'f', terms).isNoise, true);
});

test('without anything in one selection there are no shares to compare', () => {
  const d = new Difference(flat({ f: [0, 500], g: [0, 500] }), shares);

  assert.equal(d.isComparable, false);
  assert.deepEqual(d.ofNode(d.columns, 1), { now: 0.5, before: 0, error: null, isNoise: true });
});

test('live memory: bytes as they are, and nothing is said about noise', () => {
  const terms = termsOf('mem-inuse', true, hour, { seconds: 60 });
  const f = changeOf(flat({ f: [10, 12], g: [5, 5] }), 'f', terms);

  assert.deepEqual(f, { now: 12, before: 10, error: null, isNoise: false });
});

test('waits: the error is at least that of their number, or of what the hub estimates', () => {
  const c = weighted(flat({ f: [50, 50], g: [50, 50] }), 1000, 1000);
  const terms = (error?: number): Terms =>
    termsOf('off-cpu', false, { seconds: 1, error }, { seconds: 1, error });

  assert.equal(terms().errors, 'least');
  close(changeOf(c, 'f', terms()).error, Math.sqrt((2 * 0.25) / 100));
  // 20 % of 100,000: twice the 10 % that 100 equal waits have
  close(changeOf(c, 'f', terms(20_000)).error, 2 * Math.sqrt((2 * 0.25) / 100));
  close(changeOf(c, 'f', terms(5000)).error, Math.sqrt((2 * 0.25) / 100));
});

test('the smallest stacks have values without samples', () => {
  const c = flat({ f: [500, 500], rest: [500, 500] });
  const samples = (m: Measured): Measured => {
    const own = m.samples.self.map((n, i) => (i === nodeOf(c, 'rest') ? 0 : n));
    return { ...m, samples: { self: own, total: own.map((n, i) => (i ? n : 500)) } };
  };
  const rest = changeOf(arrange({ ...c, ...samples(c), before: samples(c.before!) }), 'rest');

  assert.deepEqual([rest.now, rest.before, rest.isNoise], [0.5, 0.5, true]);
});

test('the children of a node are in the order of both shares', () => {
  // before is ten times as large: without its scale g would be the greatest
  const d = new Difference(flat({ f: [100, 90], g: [900, 10] }), shares);

  assert.deepEqual(outline(d.columns), ['p', '.f', '.g']);
  assert.deepEqual([...d.columns.before!.total], [100, 10, 90]);
});

// ---- simulated ----

/** So many samples of functions whose shares fall as 1, 1/2, 1/3, ...; `more` changes weights. */
function sampled(n: number, functions: number, seed: number, more: Record<string, number> = {}) {
  const random = randomNumbers(seed);
  const bounds: number[] = [];
  const counts = new Array<number>(functions).fill(0);
  let sum = 0;

  for (let f = 0; f < functions; f++) bounds.push((sum += (more[`f${f}`] ?? 1) / (f + 1)));
  for (let i = 0; i < n; i++) {
    const at = (sum * random(1e9)) / 1e9;
    let low = 0;
    for (let high = functions - 1; low < high;) {
      const middle = (low + high) >> 1;
      if (bounds[middle] > at) high = middle;
      else low = middle + 1;
    }
    counts[low]++;
  }
  return counts;
}

function foundIn(before: number[], now: number[]): string[] {
  const names = before.map((_, f) => `f${f}`);
  const c = flat(Object.fromEntries(names.map((name, f) => [name, [before[f], now[f]]])));
  const d = new Difference(c, shares);
  const { fn, n, functions } = d.columns;

  return Array.from({ length: n }, (_, i) => i)
    .filter((i) => !d.ofNode(d.columns, i).isNoise)
    .map((i) => functions.names[fn[i]]);
}

test('simulated: of what has not changed, next to nothing is found', () => {
  const found = [
    foundIn(sampled(50_000, 3000, 1), sampled(50_000, 3000, 2)),
    foundIn(sampled(90_000, 3000, 3), sampled(9000, 3000, 4)),
    foundIn(sampled(5000, 3000, 5), sampled(50_000, 3000, 6)),
  ].flat();

  assert.ok(found.length <= 9000 / 370, `${found.length} of 9000: ${found}`);
});

test('simulated: a function that does more, and one that does less, are found', () => {
  const found = foundIn(
    sampled(50_000, 3000, 7),
    sampled(30_000, 3000, 8, { f20: 2, f30: 0.3 }),
  );

  assert.ok(found.includes('f20') && found.includes('f30'), `${found}`);
  assert.ok(found.length <= 2 + 3000 / 370, `${found}`);
});
