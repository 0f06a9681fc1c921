// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { SignInError } from '../api/hub';
import type { Hub } from '../api/queries';
import type { Info } from '../api/types';
import { parse } from '../state/address';
import { Asker } from './asker';

type Name = keyof Hub;

interface Call {
  name: Name;
  question: { tag_filter: string; time_start: number; time_end: number };
  signal: AbortSignal;
  onPreview?: (preview: unknown) => void;
  answer: (value: unknown) => void;
  fail: (error: unknown) => void;
}

const INFO = {
  auth_required: false, token_hint: '', time: 5000,
  tags: [
    { name: 'wait', title: 'Waits for', events: ['off-cpu'], help: '', stored: true, same_as: '' },
    { name: 'comm', help: '', stored: true, same_as: 'app_service' },
    { name: 'region', help: '', stored: false, same_as: '' },
  ],
};

/** A hub that answers when the test wants it to, except about itself. */
function held(why: (question: unknown) => Promise<unknown> = async () => []) {
  const calls: Call[] = [];
  const ask =
    (name: Name) =>
    (question: Call['question'], signal: AbortSignal, onPreview?: Call['onPreview']) =>
      new Promise((answer, fail) =>
        calls.push({ name, question, signal, onPreview, answer, fail }));
  const hub = {
    info: async () => INFO,
    isSignedIn: async () => false,
    profile: ask('profile'),
    series: ask('series'),
    choices: ask('choices'),
    why,
    values: ask('values'),
  } as unknown as Hub;
  const asker = new Asker(hub, () => {});
  /** The newest calls, once there are so many. */
  const newest = async (n: number): Promise<Record<string, Call>> => {
    while (calls.length < n) await new Promise((done) => setImmediate(done));
    return Object.fromEntries(calls.slice(-3).map((c) => [c.name, c]));
  };

  return { asker, calls, hub, newest };
}

const at = (hash: string) => parse(hash, 0);
const profile = (text: string) => ({ result: null, DESCRIPTION: text });

test("all questions are of one moment by the hub's clock", async () => {
  const { asker, calls, newest } = held();

  void asker.ask(at('range=300'));
  await newest(3);
  assert.deepEqual(calls.map((c) => c.name), ['profile', 'series', 'choices']);
  for (const { question: q } of calls) {
    assert.equal(q.time_end - q.time_start, 300);
    assert.ok(Math.abs(q.time_end - INFO.time) < 60);
  }
});

test('the tags are those that the hub stores, each once', async () => {
  const { asker, newest } = held();

  void asker.ask(at(''));
  await newest(3);
  const names = asker.answers().tags.map((t) => t.tag);
  assert.ok(names.includes('wait') && !names.includes('comm') && !names.includes('region'));
});

test('without the token that the hub needs nothing is asked', async () => {
  const { asker, calls, hub } = held();

  hub.info = async () => ({ ...INFO, auth_required: true }) as Info;
  await asker.ask(at(''));
  assert.deepEqual([calls.length, asker.answers().signIn, asker.answers().error], [0, '', '']);
  assert.equal(asker.answers().info?.auth_required, true);
});

test('a proxy that signs the user in: nothing is asked of the user until it refuses', async () => {
  const { asker, hub, newest } = held();

  hub.info = async () => ({ ...INFO, auth_required: true }) as Info;
  hub.isSignedIn = async () => true;
  void asker.ask(at(''));
  for (const call of Object.values(await newest(3))) call.answer(profile('good'));
  assert.equal(asker.answers().signIn, null);
  hub.isSignedIn = async () => false;
  await asker.ask(at(''), true);
  assert.equal(asker.answers().signIn, '');
});

test('a hub that cannot say whether the user is signed in is an error, no refusal', async () => {
  const { asker, calls, hub } = held();

  hub.info = async () => ({ ...INFO, auth_required: true }) as Info;
  hub.isSignedIn = () => Promise.reject(new Error('the API server cannot be asked'));
  await asker.ask(at(''));
  const { signIn, error } = asker.answers();
  assert.deepEqual([calls.length, signIn, error], [0, null, 'the API server cannot be asked']);
});

test('a preview is there until the whole answer is, and only of new choices', async () => {
  const { asker, newest } = held();

  void asker.ask(at('pod=a'));
  const { profile: asked } = await newest(3);
  asked.onPreview!({ ...profile('preview'), preview: true });
  const { profile: early } = asker.answers();
  assert.deepEqual(
    [early.preview?.reply.DESCRIPTION, early.answer, early.isStale], ['preview', null, true],
  );
  asked.answer(profile('whole'));
  await new Promise((done) => setImmediate(done));
  const { profile: whole } = asker.answers();
  assert.deepEqual([whole.preview, whole.answer?.reply.DESCRIPTION], [null, 'whole']);

  void asker.ask(at('pod=a'), true);
  const { profile: again } = await newest(6);
  assert.equal(again.onPreview, undefined);
});

test('a profile of which a part is shown has no preview, which may lack that part', async () => {
  const { asker, newest } = held();

  void asker.ask(at('zoom=main'));
  assert.equal((await newest(3)).profile.onPreview, undefined);
});

test('a new choice aborts what nobody waits for, whose answer then changes nothing', async () => {
  const { asker, newest } = held();

  void asker.ask(at('pod=old'));
  const old = await newest(3);
  void asker.ask(at('pod=new'));
  const now = await newest(6);
  assert.deepEqual(Object.values(old).map((c) => c.signal.aborted), [true, true, true]);
  assert.equal(now.profile.question.tag_filter, "pod='new'");
  now.profile.answer(profile('new'));
  old.profile.answer(profile('old'));
  await new Promise((done) => setImmediate(done));
  const { profile: part, isBusy } = asker.answers();
  assert.equal(part.answer?.reply.DESCRIPTION, 'new');
  assert.deepEqual(part.answer?.state, at('pod=new'));
  assert.deepEqual([part.isStale, isBusy], [false, true]);
});

test('an answer is stale while another question is under way, and after an error', async () => {
  const { asker, newest } = held();
  const stale = (): boolean[] => {
    const { profile: p, series } = asker.answers();
    return [p.isStale, series.isStale];
  };
  const first = asker.ask(at('pod=a'));
  const calls = await newest(3);

  calls.profile.answer(profile('a'));
  calls.series.answer({ groups: [] });
  calls.choices.answer({});
  await first;
  assert.deepEqual(stale(), [false, false]);
  void asker.ask(at('pod=a&by=pod')); // only the time line has another question
  const { series } = await newest(4);
  assert.deepEqual(stale(), [false, true]);
  series.fail(new Error('it took too long'));
  await new Promise((done) => setImmediate(done));
  assert.deepEqual(stale(), [false, true]);
  assert.equal(asker.answers().error, 'it took too long');
  assert.equal(asker.answers().isBusy, false);
});

test('another way to show a profile asks nothing; a reload asks all', async () => {
  const { asker, calls, newest } = held();

  void asker.ask(at('pod=a'));
  await newest(3);
  await asker.ask(at('pod=a&short=1&view=table&search=x&zoom=main'));
  assert.equal(calls.length, 3);
  void asker.ask(at('pod=a'), true);
  await newest(6);
});

test('a token that expires is asked for, and what was answered stays', async () => {
  const { asker, newest } = held();
  const first = asker.ask(at(''));
  const good = await newest(3);

  good.profile.answer(profile('good'));
  good.series.answer({});
  good.choices.answer({});
  await first;
  const second = asker.ask(at(''), true);
  for (const call of Object.values(await newest(6))) call.fail(new SignInError('expired'));
  await second;
  assert.deepEqual([asker.answers().signIn, asker.answers().error], ['expired', '']);
  assert.equal(asker.answers().profile.answer?.reply.DESCRIPTION, 'good');
  void asker.ask(at(''), true); // with another token
  await newest(9);
  assert.equal(asker.answers().signIn, null);
});

test('a hub that is away is asked again what it says about itself', async () => {
  const { asker, hub, newest } = held();
  const { info } = hub;

  hub.info = () => Promise.reject(new Error('away'));
  await asker.ask(at(''));
  assert.equal(asker.answers().error, 'away');
  assert.equal(asker.answers().profile.isStale, true);
  hub.info = info;
  void asker.ask(at(''), true);
  await newest(3);
  assert.equal(asker.answers().error, '');
});

test('after a reload that failed, the next choice asks the hub about itself again', async () => {
  const { asker, hub, newest } = held();
  const { info } = hub;

  void asker.ask(at('pod=a'));
  await newest(3);
  hub.info = () => Promise.reject(new Error('away'));
  void asker.ask(at('pod=a'), true);
  await newest(6);
  assert.equal(asker.answers().error, 'away');
  hub.info = info;
  void asker.ask(at('pod=b'));
  await newest(9);
  assert.equal(asker.answers().error, '');
});

test('one request has the answers of two events; a failure counts only in its view', async () => {
  const { asker, calls, newest } = held();
  const asked = asker.ask(at('trace_id=0a&view=request'));

  await newest(5);
  const [first, cpu, waits, ...others] = calls;
  first.answer(profile(''));
  cpu.answer({ result: null, summary: { samples: 1 } });
  waits.answer({ result: null, summary: { samples: 2 } });
  for (const { answer } of others) answer({});
  await asked;
  assert.deepEqual(asker.answers().request, {
    answer: { cpu: null, waits: null, summaries: { cpu: { samples: 1 }, waits: { samples: 2 } } },
    isStale: false,
  });
  void asker.ask(at('trace_id=0b&view=request'));
  await newest(10);
  calls[6].fail(new Error('it took too long'));
  await new Promise((done) => setImmediate(done));
  assert.equal(asker.answers().error, 'it took too long');
  void asker.ask(at('trace_id=0b'));
  assert.equal(asker.answers().error, '');
});

test('why is asked of the selection once its profile is empty', async () => {
  const asked: unknown[] = [];
  const { asker, newest } = held(async (question) => {
    asked.push(question);
    return [{ reason: 'no_target', text: 'No target.', command: null }];
  });
  const ask = async (hash: string, n: number, result: unknown): Promise<void> => {
    const end = asker.ask(at(hash));
    const { profile: call, series, choices } = await newest(n);

    call.answer({ ...profile(''), result });
    series.answer({});
    choices.answer({});
    await end;
  };
  const full = {
    strings: ['p'], kinds: ['root'], inlined: [],
    functions: { name: [0], kind: [0], module: [-1], file: [-1], line: [0] },
    nodes: { function: [0], depth: [0], self: [1], samples: [1] },
  };

  await ask('pod=a', 3, full);
  assert.deepEqual(asked, []);
  await ask('pod=b', 6, null);
  assert.deepEqual(Object.keys(asked[0] as object).sort(), [
    'app_service', 'profile_event_type', 'tag_filter', 'time_end', 'time_start',
  ]);
  assert.equal(asker.answers().why.answer?.[0].reason, 'no_target');
  assert.deepEqual([asker.answers().why.isStale, asker.answers().error], [false, '']);
});

test('why is asked also if the profile is shown in another way while it is under way', async () => {
  const asked: unknown[] = [];
  const { asker, newest } = held(async (question) => {
    asked.push(question);
    return [];
  });
  const first = asker.ask(at('pod=a'));
  const calls = await newest(3);

  await asker.ask(at('pod=a&short=1'));
  calls.profile.answer(profile(''));
  calls.series.answer({});
  calls.choices.answer({});
  await first;
  assert.deepEqual(asked.map((q) => (q as Call['question']).tag_filter), ["pod='a'"]);
  assert.deepEqual(asker.answers().why.answer, []);
});

test('a hub that cannot say why is no error of the page', async () => {
  const { asker, newest } = held(() => Promise.reject(new Error('nothing at this path')));
  const end = asker.ask(at(''));
  const calls = await newest(3);

  calls.profile.answer(profile(''));
  calls.series.answer({});
  calls.choices.answer({});
  await end;
  assert.equal(asker.answers().error, '');
  assert.equal(asker.answers().why.error, 'nothing at this path');
});

test('values are offered for what a user types, under the other conditions', async () => {
  const { asker, calls, newest } = held();

  const state = at('pod_ns=app&pod=a&wait=lock&app_service=java&range=300');
  void asker.ask(state);
  await newest(3);
  const offered = asker.offer(state, 'pod', '=', 'we', new AbortController().signal);
  const { name, question } = calls.at(-1)!;
  assert.equal(name, 'values');
  assert.equal(question.tag_filter, "pod_ns='app' AND pod LIKE '%we%'");
  assert.equal(question.time_end - question.time_start, 300);
  calls.at(-1)!.answer({ values: [], truncated: false });
  assert.deepEqual(await offered, { values: [], truncated: false });
});
