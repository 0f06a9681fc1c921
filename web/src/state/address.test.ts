// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { parse, print } from './address';
import { defaults, type State } from './state';

const NOW = 1_800_000_000;
const at = (text: string): number => Date.parse(text) / 1000;
const of = (hash: string): Partial<State> => {
  const state = parse(hash, NOW);
  const keys = Object.keys(state) as (keyof State)[];

  return Object.fromEntries(
    keys
      .filter((key) => JSON.stringify(state[key]) !== JSON.stringify(defaults[key]))
      .map((key) => [key, state[key]]),
  );
};

/** Each member as it is not by default. */
const other: State = {
  event: 'off-cpu',
  times: { from: at('2026-11-21T10:00:03Z'), to: at('2026-11-21T11:00:00Z') },
  process: 'web & co',
  filter: {
    conditions: [
      { tag: 'pod_ns', op: '=', values: ['shop'] },
      { tag: 'k8s.label.app/name', op: '=', values: ["it's"] },
      { tag: 'pod', op: 'IN', values: ['a', 'b'] },
      { tag: 'image', op: 'NOT REGEXP', values: ['^x.*=\\d'] },
    ],
  },
  compare: {
    times: { last: 86400 },
    process: '',
    filter: { text: "pod='x' OR pod='y'" },
  },
  grown: true,
  view: 'sandwich',
  by: 'pod',
  fn: { name: 'read(int, "x")', kind: 'wait: lock' },
  fold: { threads: 'none', recursion: true, libraries: false, runtimes: true },
  hidden: [{ name: 'a', kind: 'app' }, { name: 'b;c,d', kind: 'kernel' }],
  without: [{ name: 'e&f', kind: 'jvm' }],
  withoutIdle: true,
  focus: ['web', 'main', 'f<int, g&>'],
  zoom: ['web', 'main'],
  byLine: true,
  byStart: true,
  colours: 'module',
  per: 'cpu-second',
  search: '"read" kernel',
  upward: true,
  short: true,
  sort: { column: 'name', descending: false },
  durationUs: 1500,
};

test('a time that cannot be shown is none', () => {
  assert.deepEqual(of('range=9000000000000'), {});
  assert.deepEqual(of('before_range=9000000000000'), {});
});

test('nothing is written of what is as it is by default', () => {
  assert.equal(print(defaults), '');
  assert.deepEqual(parse('', NOW), defaults);
  assert.deepEqual(parse('#', NOW), defaults);
});

test('all members are written and read, together and each alone', () => {
  assert.deepEqual(parse(`#${print(other)}`, NOW), other);
  for (const key of Object.keys(defaults) as (keyof State)[]) {
    const one = { ...defaults, [key]: other[key] };

    assert.notDeepEqual(one, defaults, key);
    assert.deepEqual(parse(print(one), NOW), one, key);
  }
});

test('an = condition is readable, the others are text', () => {
  assert.equal(
    decodeURIComponent(print({ ...defaults, filter: other.filter })),
    "pod_ns=shop&k8s.label.app/name=it's&" +
      "filter=pod+IN+('a',+'b')+AND+image+NOT+REGEXP+'^x.*=\\d'",
  );
});

test('two values that one tag must have at once stay two', () => {
  const filter = {
    conditions: ['a', 'b', ''].map((v) => ({ tag: 'pod', op: '=' as const, values: [v] })),
  };

  assert.deepEqual(parse(print({ ...defaults, filter }), NOW).filter, filter);
});

test('readable conditions beside text that is more than conditions are required, too', () => {
  assert.deepEqual(of("pod_ns=a&filter=pod='x' OR pod='y'"), {
    filter: { text: "(pod='x' OR pod='y') AND pod_ns='a'" },
  });
});

test('addresses of earlier versions', () => {
  assert.deepEqual(
    of(
      '#pod_ns=app&range=3600&profile_event_type=off-cpu&app_service=web&by=pod' +
        '&trace_id=0af7651916cd43dd8448eb211c80319c&wait=lock' +
        '&from=2026-11-21T10:00:03Z&to=2026-11-21T11:00:00Z',
    ),
    {
      event: 'off-cpu',
      times: { last: 3600 },
      process: 'web',
      by: 'pod',
      filter: {
        conditions: [
          { tag: 'pod_ns', op: '=', values: ['app'] },
          { tag: 'trace_id', op: '=', values: ['0af7651916cd43dd8448eb211c80319c'] },
          { tag: 'wait', op: '=', values: ['lock'] },
        ],
      },
    },
  );
  assert.deepEqual(of('#range=custom&from=2026-11-21T10:00:03Z&to=2026-11-21T11:00:00Z'), {
    times: other.times,
  });
  assert.deepEqual(of('range=custom&from=2026-11-21T10:00:03Z'), {
    times: { from: at('2026-11-21T10:00:03Z'), to: NOW },
  });
});

test('the leak view of earlier versions is a comparison of two snapshots', () => {
  const snapshot = (t: number) => ({ from: t - 90, to: t });
  const growth = '#profile_event_type=mem-inuse&growth=1';
  const [from, to] = ['2026-11-21T10:00:03Z', '2026-11-21T11:00:00Z'];
  const none = { process: '', filter: { conditions: [] } };

  assert.deepEqual(of(`${growth}&grown_from=${from}&grown_to=${to}`), {
    event: 'mem-inuse',
    times: snapshot(at(to)),
    compare: { ...none, times: snapshot(at(from)) },
    grown: true,
  });
  assert.deepEqual(of(`${growth}&range=300`), {
    event: 'mem-inuse',
    times: snapshot(NOW),
    compare: { ...none, times: snapshot(NOW - 300) },
    grown: true,
  });
  assert.deepEqual(of('#growth=1'), {});
});

test('both selections of a comparison have the same filter unless the address says more', () => {
  const shop = { conditions: [{ tag: 'pod_ns', op: '=' as const, values: ['shop'] }] };

  assert.deepEqual(of('pod_ns=shop&app_service=web&before_range=3600'), {
    process: 'web',
    filter: shop,
    compare: { times: { last: 3600 }, process: 'web', filter: shop },
  });
});

test('the link of a tracing system shows its request, unless the address names a view', () => {
  const link =
    'trace_id=0af7651916cd43dd8448eb211c80319c&duration_us=350000' +
    '&from=2026-11-21T10:00:03.5Z&to=2026-11-21T11:00:00Z';
  const state = parse(link, NOW);

  assert.deepEqual([state.view, state.durationUs], ['request', 350_000]);
  assert.deepEqual(state.times, other.times);
  for (const view of ['graph', 'table', 'request'] as const)
    assert.equal(parse(print({ ...state, view }), NOW).view, view);
  assert.equal(parse('trace_id=0af7651916cd43dd8448eb211c80319c', NOW).view, 'graph');
  assert.equal(parse('duration_us=350000', NOW).view, 'graph');
});

test('what the page does not know has no effect', () => {
  assert.deepEqual(
    of('nonsense=1&range=never&view=none&colours=&sort=x&threads=&fold=a,b&duration_us=-1&pod='),
    {},
  );
  assert.deepEqual(of('&&=&%&from=yesterday'), {});
});
