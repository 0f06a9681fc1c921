// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Series } from '../api/types';
import { layers, marks } from './steps';

const series = (members: Partial<Series>): Series => ({
  unit: 'bytes', start: 100, step: 10, steps: 4, groups: [], others: null, losses: [], starts: [],
  more_starts: false, ...members,
});
const clock = (s: number): string => `${s}`;

test('layers lie on top of each other, the others above all', () => {
  const groups = [{ value: 'a', values: [1, 2, 3, 4] }, { value: null, values: [5, 0, 0, 1] }];
  const all = layers(series({ groups, others: [0, 7, 0, 0] }), true);

  assert.deepEqual(all.map((l) => [l.name, l.tops]), [
    ['a', [1, 2, 3, 4]],
    ['none', [6, 2, 3, 5]],
    ['others', [6, 9, 3, 5]],
  ]);
  assert.deepEqual(all.map((l) => l.value), ['a', null, null]);
  assert.equal(layers(series({ groups: groups.slice(1) }), false)[0].name, 'all');
});

test('a mark says all that was lost and began in its steps, as long as it goes on', () => {
  const lost = { reason: 'counts_full', samples: [0, 3, 0, 0], time_ns: [0, 0, 0, 0] };
  const down = { reason: 'agent_down', samples: [0, 0, 0, 0], time_ns: [0, 1e9, 5e8, 0] };
  const all = { losses: [lost, down], starts: [99, 110, 119, 139] };
  const said = (width: number) =>
    marks(series(all), width, clock).map((m) => [m.from, m.to, m.isLoss, m.text]);
  const full = "more different stacks in a second than the kernel's table holds (counts_full)";

  assert.deepEqual(said(1), [
    [110, 130, true, `110 to 130: 3 samples lost: ${full} · ` +
      '1.5 s without data: no agent ran on the node (agent_down) · 2 processes began'],
    [130, 140, false, '130 to 140: 1 process began'],
  ]);
  assert.deepEqual(said(3).map((m) => m.slice(0, 3)), [[100, 130, true], [130, 140, false]]);
});

test('the last mark says that there may be more', () => {
  const all = marks(series({ starts: [101, 125], more_starts: true }), 1, clock);

  assert.deepEqual(all.map((m) => m.text), [
    '100 to 110: 1 process began',
    '120 to 130: 1 process began · those that began later are not marked',
  ]);
});
