// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { groupRows, type GroupsResult } from './groups';

/** Each sample has the value 2. */
const sums = (total: number) => ({ total, samples: total / 2 });
const of = (
  totals: Record<string, number>, others = { groups: 0, total: 0 },
): GroupsResult => ({
  groups: Object.entries(totals).map(([value, total]) => ({ value, ...sums(total) })),
  ...sums(Object.values(totals).reduce((a, b) => a + b, others.total)),
  others: { ...others, ...sums(others.total) },
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
      { value: 'a', total: 50, samples: 5, function_total: 9, function_samples: 3 },
      { value: 'b', total: 900, samples: 90, function_total: 1, function_samples: 1 },
    ],
    total: 950, samples: 95, function_total: 10, function_samples: 4,
    others: { groups: 0, total: 0, samples: 0, function_total: 0, function_samples: 0 },
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

test('what two selections have of a group, as far as both are known', () => {
  const amounts = (now: GroupsResult, before: GroupsResult | null) =>
    groupRows(now, before).map((r) =>
      r.amounts && [r.amounts.now, r.amounts.before].map((a) => [a.value, a.samples]));

  assert.deepEqual(amounts(of({ a: 60, b: 40 }), of({ a: 10, c: 10 })), [
    [[60, 30], [10, 5]], [[40, 20], [0, 0]], [[0, 0], [10, 5]],
  ]);
  assert.deepEqual(amounts(of({ a: 60 }), of({ b: 10 }, { groups: 1, total: 2 })), [
    null, [[0, 0], [10, 5]],
  ]);
  assert.deepEqual(amounts(of({ a: 60 }), null), [null]);
});
