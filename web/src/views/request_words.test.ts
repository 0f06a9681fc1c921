// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Request, Spent } from '../profile/request';
import { exactText, reasons, seenText, trustTexts } from './request_words';

const cpu: Spent = {
  kind: 'cpu', name: 'on a CPU', value: 30_000, samples: 3, error: 30_000 / Math.sqrt(3),
};
const lock: Spent = {
  kind: 'wait: lock', name: 'waiting: lock', value: 180_000, samples: 2, error: 0,
};
const of = (ways: Spent[], missing: number | null): Request => ({
  columns: null, spans: [], ways, missing, seen: ways.reduce((sum, { value }) => sum + value, 0),
});
const both = { cpu: { samples: 3, profiles: 1 }, waits: { samples: 2, profiles: 1 } };

test('how much was seen, with and without the duration', () => {
  assert.match(seenText(of([cpu, lock], null), null), /^210 ms .* does not know how long/);
  assert.equal(
    seenText(of([cpu, lock], 140_000), 350_000),
    '210 ms of 350 ms were seen. 140 ms (40.0 %) are missing.',
  );
  assert.match(
    seenText(of([cpu, lock], 0), 100_000),
    /adds up to 210 ms, and the request took 100 ms: several threads or pods/,
  );
  assert.equal(seenText(of([cpu, lock], 0), 210_000), 'All of 210 ms were seen.');
});

test('three samples are no exact number; waits are measured', () => {
  const [first, second, ...more] = trustTexts(of([cpu, lock], 140_000), both);

  assert.match(first, /estimate from 3 samples, each of which stands for 10.0 ms/);
  assert.match(first, /± 17.3 ms\.$/);
  assert.equal(second, 'The waits were measured.');
  assert.deepEqual(more, []);
  assert.deepEqual([cpu, lock].map(exactText), ['± 17.3 ms', 'measured']);
});

test('what is missing may be less than the error', () => {
  assert.match(trustTexts(of([cpu], 10_000), both)[0], /missing is not more than that\.$/);
  assert.doesNotMatch(trustTexts(of([cpu], 18_000), both)[0], /not more/);
});

test('estimated waits, no waits in this time, no sample, losses', () => {
  const losses = [{ reason: 'counts_full', samples: 1 }];
  const estimated = { ...both.waits, estimated: { share: 0.25, error: 1 } };

  assert.match(trustTexts(of([lock], null), { ...both, waits: estimated })[1], /only 25.0 % of/);
  assert.match(
    trustTexts(of([cpu], null), { ...both, waits: { samples: 0, profiles: 0 } })[1],
    /No waits of any process are stored .* off-cpu\?/,
  );
  assert.match(trustTexts(of([lock], null), both)[0], /^No sample found the request on a CPU/);
  assert.match(
    trustTexts(of([lock], null), { ...both, cpu: { samples: 0, losses } })[2], /were lost/,
  );
});

test('CPU limits are among the reasons for what is missing, if they held something back', () => {
  const all = (throttled_us?: number) =>
    reasons({ waits: { samples: 0, throttled_us } }).join('\n');

  assert.match(all(12_000), /CPU limits held back .* for 12.0 ms/);
  assert.doesNotMatch(all(), /CPU limits/);
});
