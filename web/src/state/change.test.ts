// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { changed } from './change';
import { parseFilter } from './filter';
import { defaults, type State } from './state';

const a = parseFilter("pod='a'");
const b = parseFilter("pod='b'");

test('another question shows all of its answer; another way to show it keeps the zoom', () => {
  const zoomed = { ...defaults, zoom: ['web', 'main'] };

  assert.deepEqual(changed(zoomed, { short: true }).zoom, ['web', 'main']);
  assert.deepEqual(changed(zoomed, { filter: a }).zoom, []);
  assert.deepEqual(changed(zoomed, { filter: a, zoom: ['x'] }).zoom, ['x']);
});

test('what both selections of a comparison have in common, they keep in common', () => {
  const both: State = {
    ...defaults,
    filter: a,
    compare: { times: { last: 60 }, process: 'old', filter: a },
  };

  assert.deepEqual(changed(both, { filter: b, process: 'web' }).compare, {
    times: { last: 60 },
    process: 'old',
    filter: b,
  });
  assert.deepEqual(changed({ ...both, filter: b }, { filter: parseFilter('') }).compare?.filter, a);
  assert.equal(changed(both, { compare: null }).compare, null);
});
