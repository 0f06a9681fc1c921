// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { parse } from '../state/address';
import type { Tag } from '../state/tags';
import { questionsOf } from './questions';

const NOW = 10_000;
const tags: Tag[] = [{ tag: 'wait', label: 'Waits for', events: ['off-cpu'] }];
const of = (hash: string) => questionsOf(parse(hash, NOW), tags, NOW);

test('what is chosen is the selection of all questions', () => {
  const { profile, series, choices } = of('pod=a&app_service=web&range=300&by=pod');
  const selection = {
    profile_event_type: 'on-cpu',
    app_service: 'web',
    tag_filter: "pod='a'",
    time_start: 9700,
    time_end: 10_000,
  };

  assert.deepEqual(JSON.parse(JSON.stringify(profile)), selection);
  assert.deepEqual(series, { ...selection, group_by: 'pod' });
  assert.deepEqual({ ...choices, tags: [] }, { ...selection, tags: [] });
});

test('all profiles name functions without a name by where they begin, if that is chosen', () => {
  const { profile, breakdown } = of('starts=1&before_range=300&view=breakdown&by=pod');

  assert.equal(of('').profile.unnamed, undefined);
  assert.deepEqual(
    [profile, profile.before, breakdown?.now, breakdown?.before].map((q) => q?.unnamed),
    ['start', 'start', 'start', 'start'],
  );
});

test('tags that only some events have are of no account for the others', () => {
  assert.equal(of('wait=lock&pod=a').profile.tag_filter, "pod='a'");
  assert.equal(of('by=wait').series.group_by, '');
  assert.ok(!of('').choices.tags.includes('wait'));
  const { profile, series, choices } = of('profile_event_type=off-cpu&wait=lock&by=wait');
  assert.deepEqual([profile.tag_filter, series.group_by], ["wait='lock'", 'wait']);
  assert.ok(choices.tags.includes('wait'));
});

test('a comparison asks for both selections, and is about the time of the later one', () => {
  const { profile, series } = of(
    "range=300&before_from=1970-01-01T00:16:40Z&before_filter=pod='b'",
  );

  assert.deepEqual(profile.before, {
    profile_event_type: 'on-cpu',
    app_service: '',
    tag_filter: "pod='b'",
    time_start: 1000,
    time_end: 10_000,
  });
  assert.equal(series.time_start, 9700);
});

test('the leak view is about the time between its moments, and their snapshots', () => {
  const { profile, series, choices } = of(
    'profile_event_type=mem-inuse&growth=1&grown_from=1970-01-01T01:00:00Z' +
      '&grown_to=1970-01-01T02:00:00Z',
  );

  assert.deepEqual(
    [profile.before, profile].map((s) => [s?.time_start, s?.time_end]),
    [[3510, 3600], [7110, 7200]],
  );
  assert.deepEqual([series, choices].map((s) => [s.time_start, s.time_end]), [
    [3510, 7200],
    [3510, 7200],
  ]);
});

test('one request is both events of all its threads, until its last window is stored', () => {
  const { profile, request } = of(
    'trace_id=0a&duration_us=5&wait=lock&pod=a&app_service=b&range=300',
  );
  const selection = {
    app_service: '', tag_filter: "trace_id='0a'", time_start: 9700, time_end: 10_090,
    group_by: 'profile_id',
  };

  assert.deepEqual(request, {
    cpu: { ...selection, profile_event_type: 'on-cpu' },
    waits: { ...selection, profile_event_type: 'off-cpu' },
  });
  assert.deepEqual([profile.group_by, profile.time_end], [undefined, 10_000]);
});

test('a request is asked for only in its view, and if there is one', () => {
  assert.equal(of('trace_id=0a').request, null);
  assert.equal(of('trace_id=0a&duration_us=5&view=graph').request, null);
  assert.equal(of('view=request').request, null);
});
