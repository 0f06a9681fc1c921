// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { requestOf, type Request, type Spent } from './request';
import { outline } from './testing';
import { fromTree, type TreeResult } from './tree';

/** A level: its kind and name, the time and the samples of itself, and what is below it. */
type Level = [text: string, self: number, samples: number, ...below: Level[]];

function answer(...spans: Level[]) {
  const strings: string[] = [];
  const kinds: string[] = [];
  const functions: TreeResult['functions'] = { name: [], kind: [], module: [], file: [], line: [] };
  const nodes: TreeResult['nodes'] = { function: [], depth: [], self: [], samples: [] };
  const add = ([text, self, samples, ...below]: Level, depth: number): void => {
    const [kind, name] = text.split(/ (.*)/);

    functions.kind.push(kinds.push(kind) - 1);
    functions.name.push(strings.push(name) - 1);
    functions.module.push(-1);
    functions.file.push(-1);
    functions.line.push(0);
    nodes.function.push(nodes.function.length);
    nodes.depth.push(depth);
    nodes.self.push(self);
    nodes.samples.push(samples);
    for (const level of below) add(level, depth + 1);
  };

  add(['root web', 0, 0, ...spans], 0);
  return fromTree({ strings, kinds, functions, nodes, inlined: [] });
}

const A = '00f067aa0ba902b7';
const B = '53995c3f42cd8ad8';
const NONE = '0000000000000000';

const cpu = answer(
  [`group ${A}`, 0, 0,
    ['thread web', 0, 0, ['app main', 0, 0, ['app parse', 20_000, 2], ['app render', 10_000, 1]]]],
  [`group ${B}`, 0, 0, ['thread db', 0, 0, ['app query', 40_000, 4]]],
);
const waits = answer(
  [`group ${A}`, 0, 0,
    ['thread web', 0, 0,
      ['app main', 0, 0,
        ['library lock', 0, 0, ['wait [wait: lock]', 150_000, 3]],
        ['library read', 0, 0,
          ['wait [wait: socket]', 60_000, 2], ['wait [wait: runqueue]', 5_000, 2]]]]],
  [`group ${B}`, 0, 0, ['thread db', 0, 0, ['app query', 0, 0, ['wait [wait: lock]', 7_000, 1]]]],
);

const ways = (all: Spent[]) => all.map(({ name, value, samples }) => [name, value, samples]);
/** The frames with their totals. */
const picture = ({ columns }: Request) =>
  outline(columns!).map((name, i) => `${name} ${columns!.total[i] / 1000}`);

test('a request is its spans, below them how time was spent, below that the stacks', () => {
  assert.deepEqual(picture(requestOf(cpu, waits, null)), [
    'the request 292',
    `.span ${A} 245`,
    '..waiting: lock 150', '...web 150', '....main 150', '.....lock 150',
    '..waiting: socket 60', '...web 60', '....main 60', '.....read 60',
    '..on a CPU 30', '...web 30', '....main 30', '.....parse 20', '.....render 10',
    '..ready, but no CPU 5', '...web 5', '....main 5', '.....read 5',
    `.span ${B} 47`,
    '..on a CPU 40', '...db 40', '....query 40',
    '..waiting: lock 7', '...db 7', '....query 7',
  ]);
});

test('each way has a kind, which gives it its colour', () => {
  const { columns } = requestOf(cpu, waits, 1e6);
  const { names, kinds } = columns!.functions;
  const kindOf = (name: string) => kinds[names.indexOf(name)];

  assert.deepEqual(
    ['on a CPU', 'waiting: lock', 'ready, but no CPU', 'not seen', `span ${A}`].map(kindOf),
    ['cpu', 'wait: lock', 'wait: runqueue', 'missing', 'group'],
  );
});

test('sums by span and of all spans, with their samples', () => {
  const { spans, ways: all, seen, missing } = requestOf(cpu, waits, null);

  assert.deepEqual(spans.map(({ id, value }) => [id, value]), [[A, 245_000], [B, 47_000]]);
  assert.deepEqual(ways(spans[0].ways), [
    ['waiting: lock', 150_000, 3], ['waiting: socket', 60_000, 2], ['on a CPU', 30_000, 3],
    ['ready, but no CPU', 5_000, 2],
  ]);
  assert.deepEqual(ways(all), [
    ['waiting: lock', 157_000, 4], ['on a CPU', 70_000, 7], ['waiting: socket', 60_000, 2],
    ['ready, but no CPU', 5_000, 2],
  ]);
  assert.deepEqual([seen, missing], [292_000, null]);
});

test('time on a CPU has the error of a count; waits are measured', () => {
  const { ways: all } = requestOf(cpu, waits, null);
  const error = (kind: string) => all.find((w) => w.kind === kind)!.error;

  assert.equal(Math.round(error('cpu')), Math.round(70_000 / Math.sqrt(7)));
  assert.equal(error('wait: lock'), 0);
});

test('what is missing of the duration is a part of the picture', () => {
  const r = requestOf(cpu, waits, 500_000);

  assert.equal(r.missing, 208_000);
  assert.equal(r.seen, 292_000);
  assert.deepEqual(picture(r).filter((line) => /^\.?\w/.test(line)), [
    'the request 500', `.span ${A} 245`, '.not seen 208', `.span ${B} 47`,
  ]);
});

test('threads that worked at the same time may add up to more: then nothing is missing', () => {
  const r = requestOf(cpu, waits, 100_000);

  assert.equal(r.missing, 0);
  assert.equal(r.columns!.total[0], 292_000);
  assert.ok(!r.columns!.functions.kinds.includes('missing'));
});

test('nothing was seen, or only one of the two', () => {
  assert.deepEqual(requestOf(null, null, 5000), {
    columns: null, spans: [], ways: [], seen: 0, missing: 5000,
  });
  assert.deepEqual(ways(requestOf(cpu, null, null).ways), [['on a CPU', 70_000, 7]]);
  assert.deepEqual(ways(requestOf(null, waits, null).ways).length, 3);
});

test('a call without a span, and stacks that the hub did not keep apart', () => {
  const r = requestOf(
    answer([`group ${NONE}`, 0, 0, ['thread web', 0, 0, ['app main', 10, 1]]]),
    answer(['marker [others]', 3, 1], [`group ${A}`, 0, 0, ['marker [smaller stacks]', 2, 0]]),
    null,
  );

  assert.deepEqual(picture(r).map((line) => line.replace(/ [^ ]*$/, '')), [
    'the request', '.span not known', '..on a CPU', '...web', '....main', '..waiting: other',
    `.span ${A}`, '..waiting: other', '...[smaller stacks]',
  ]);
  assert.deepEqual(r.spans.map(({ id, value }) => [id, value]), [['', 13], [A, 2]]);
});
