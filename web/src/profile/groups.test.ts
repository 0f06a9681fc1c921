// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { groupRows, type GroupsResult } from './groups';

const none = { groups: 0, total: 0 };
const of = (totals: Record<string, number>, others = none): GroupsResult => ({
  groups: Object.entries(totals).map(([value, total]) => ({ value, total })),
  total: Object.values(totals).reduce((a, b) => a + b, others.total),
  others,
});
const brief = (now: GroupsResult, before: GroupsResult | null = null) =>
  groupRows(now, before).map((r) => [r.value, r.amount, r.share, r.before]);

test('values and shares; the groups beyond the limit are one row', () => {
  assert.deepEqual(brief(of({ a: 60, b: 30 }, { groups: 4, total: 10 })), [
    ['a', 60, 0.6, null], ['b', 30, 0.3, null], [null, 10, 0.1, null],
  ]);
  assert.deepEqual(brief(of({})), []);
});

test('of a function: its own amounts and shares', () => {
  const rows = groupRows({
    groups: [
      { value: 'a', total: 50, function_total: 9 },
      { value: 'b', total: 900, function_total: 1 },
    ],
    total: 950, function_total: 10, others: { groups: 0, total: 0, function_total: 0 },
  }, null);

  assert.deepEqual(rows.map((r) => [r.value, r.amount, r.total, r.share]),
    [['a', 9, 50, 0.9], ['b', 1, 900, 0.1]]);
});

test('beside another selection: what is new, and what is gone', () => {
  assert.deepEqual(brief(of({ a: 60, b: 40 }), of({ a: 10, c: 10 })), [
    ['a', 60, 0.6, 0.5], ['b', 40, 0.4, 0], ['c', 0, 0, 0.5],
  ]);
});

test('a group that may be one of the others is not known', () => {
  const others = { groups: 2, total: 50 };

  assert.deepEqual(brief(of({ a: 50 }, others), of({ c: 50 }, others)), [
    ['a', 50, 0.5, null], ['c', null, null, 0.5], [null, 50, 0.5, null],
  ]);
});

test('the smallest stacks of an answer that is cut belong to the others', () => {
  assert.deepEqual(brief(of({ a: 90 }, { groups: 0, total: 10 })), [
    ['a', 90, 0.9, null], [null, 10, 0.1, null],
  ]);
});
