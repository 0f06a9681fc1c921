// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { comparedWith, ended, offsetsOf, swapped, withEarlier, withOthers } from './compare';
import { parseFilter, printFilter } from './filter';
import { defaults, type State } from './state';

const NOW = 1_800_000_000;
const web: State = {
  ...defaults, process: 'web', filter: parseFilter("pod_ns='shop' AND pod='a'"),
};
const filters = ({ filter, compare }: Partial<State>) =>
  [filter && printFilter(filter), compare && printFilter(compare.filter)];

test('the same, a day before', () => {
  assert.deepEqual(withEarlier(web, 86400, NOW), {
    times: { from: NOW - 900, to: NOW },
    compare: {
      times: { from: NOW - 86400 - 900, to: NOW - 86400 }, process: 'web', filter: web.filter,
    },
    colours: 'difference',
  });
});

test('earlier times of the same length: first the one that ends where this one begins', () => {
  const offsets = (times: State['times']) =>
    offsetsOf({ ...web, times }, NOW).map(([seconds]) => seconds);

  assert.deepEqual(offsets({ from: NOW - 420, to: NOW }), [420, 3600, 86400, 604800]);
  assert.deepEqual(offsets({ from: NOW - 3600, to: NOW }), [3600, 86400, 604800]);
});

test('a value of a tag and all others, whatever value was chosen', () => {
  assert.deepEqual(filters(withOthers(web, 'pod', 'b')),
    ["pod_ns='shop' AND pod='b'", "pod_ns='shop' AND pod!='b'"]);
  const two = { ...web, filter: parseFilter('cpu=1 OR cpu=2') };
  assert.deepEqual(filters(withOthers(two, 'pod', 'b')),
    ["(cpu=1 OR cpu=2) AND pod='b'", "(cpu=1 OR cpu=2) AND pod!='b'"]);
  const process = withOthers(web, 'app_service', 'api');

  assert.deepEqual([process.process, process.compare?.process], ['api', '']);
  assert.deepEqual(filters(process),
    ["pod_ns='shop' AND pod='a'", "pod_ns='shop' AND pod='a' AND app_service!='api'"]);
});

test('what is not said stays as it is, and selections can be swapped', () => {
  const one = { ...web, ...comparedWith(web, { process: 'old' }) };
  const two = { ...one, ...comparedWith(one, { times: { last: 60 } }) };

  assert.deepEqual(two.compare, { times: { last: 60 }, process: 'old', filter: web.filter });
  const other = { ...two, ...swapped(two) };
  assert.deepEqual([other.process, other.times], ['old', { last: 60 }]);
  assert.deepEqual(other.compare, { times: web.times, process: 'web', filter: web.filter });
});

test('without a comparison there is nothing of it', () => {
  const state = { ...web, ...withEarlier(web, 3600, NOW), grown: true };

  assert.deepEqual({ ...state, ...ended(state), times: web.times }, web);
  assert.equal(ended({ ...state, colours: 'module' }).colours, 'module');
});
