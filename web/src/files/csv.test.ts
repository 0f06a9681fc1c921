// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Columns } from '../profile/columns';
import { Difference, termsOf } from '../profile/difference';
import { functionTable } from '../profile/table';
import { differenceOf, profileOf, type Tree } from '../profile/testing';
import { csvOf } from './csv';

const csv = (profile: Columns, scale = 1, isGrowth = false): string =>
  csvOf(functionTable(profile), {
    unit: 'bytes',
    now: { whole: profile.total[0] },
    before: { whole: profile.before?.total[0] ?? 0, scale },
    isGrowth,
  });

const lines = (text: string): string[] => {
  assert.ok(text.endsWith('\r\n'));
  return text.slice(0, -2).split('\r\n');
};
const nameOf = (name: string): string =>
  lines(csv(profileOf(['root', 0, [name, 1]])))[1].replace(/,"app",.*/, '');

test('the functions with their values, the greatest first', () => {
  const profile = profileOf(['root', 0, ['main', 1, ['[k] read', 3], ['work', 4]]]);

  assert.deepEqual(lines(csv(profile)), [
    '"function","kind","source","self (bytes)","self (%)","total (bytes)","total (%)"',
    '"work","app","",4,50,4,50',
    '"read","kernel","",3,37.5,3,37.5',
    '"main","app","",1,12.5,8,100',
  ]);
});

test('a difference has the values of both selections', () => {
  const tree = (self: number): Tree => ['root', 0, ['main', self]];
  const [head, main] = lines(csv(differenceOf(tree(2), tree(6))));

  assert.match(head, /"self before \(bytes\)","self before \(%\)","total before \(bytes\)"/);
  assert.equal(main, '"main","app","",6,100,6,100,2,100,2,100');
});

test('the other selection of a difference has the values that were measured', () => {
  const tree = (f: number, g: number): Tree => ['root', 0, ['f', f], ['g', g]];
  const hour = { seconds: 3600 };
  const measured = differenceOf(tree(1, 6), tree(2, 1));
  const { columns, scale } = new Difference(measured, termsOf('on-cpu', false, hour, hour));

  assert.deepEqual(lines(csv(columns, scale)).slice(1), [
    '"f","app","",2,66.667,2,66.667,1,14.286,1,14.286',
    '"g","app","",1,33.333,1,33.333,6,85.714,6,85.714',
  ]);
});

test('the titles say that values are growth', () => {
  const [head] = lines(csv(profileOf(['root', 0, ['main', 1]]), 1, true));

  assert.match(head, /"self growth \(bytes\)","self growth \(%\)","total growth \(bytes\)"/);
});

test('a name with quotes, commas or line ends is one cell', () => {
  assert.equal(nameOf('operator"" s(a, b)'), '"operator"""" s(a, b)"');
  assert.equal(nameOf('a\r\nb'), '"a\ufffd\ufffdb"');
});

test('no name is a formula', () => {
  for (const name of ['=1+1', '+1', '-1', '@SUM(A1)', ' =1', '＝1'])
    assert.equal(nameOf(name), `"'${name}"`);
  assert.equal(nameOf('a=1'), '"a=1"');
});
