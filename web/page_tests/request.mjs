// SPDX-License-Identifier: Apache-2.0
// Tests of the page: one request: its spans, what was seen of them, and what is missing.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import {
  answersAre,
  boxes,
  cells,
  names,
  open,
  pixelOf,
  replyOfTree,
  startRequest,
  widest,
} from '../page_testing.mjs';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const A = '00f067aa0ba902b7';
const B = '53995c3f42cd8ad8';
const NOTHING = { OPT_STATUS: 'SUCCESS', DESCRIPTION: '', result: null, unit: 'microseconds' };

// 30 ms on a CPU in 3 samples, 150 ms for a lock, 30 ms for a socket: 210 ms.
const cpu = () =>
  replyOfTree(
    ['web', 'root', 0,
      [A, 'group', 0, ['web', 'thread', 0, ['parse', 'app', 30_000, { samples: 3 }]]]],
  );
const waits = (summary = {}) =>
  replyOfTree(
    ['web', 'root', 0,
      [A, 'group', 0,
        ['web', 'thread', 0, ['lock', 'library', 0, ['[wait: lock]', 'wait', 150_000]]]],
      [B, 'group', 0,
        ['db', 'thread', 0, ['read', 'library', 0, ['[wait: socket]', 'wait', 30_000]]]]],
    { summary },
  );
const isOf = (event) => ({ group_by: tag, profile_event_type: own }) =>
  tag === 'profile_id' && own === event;

// Lets the hub answer about the request, and returns what it was asked.
const answer = (page, { cpu: ofCpu = cpu(), waits: ofWaits = waits() } = {}) =>
  answersAre(page, (body) => {
    if (!body.group_by) return NOTHING;
    return isOf('on-cpu')(body) ? ofCpu : ofWaits;
  });
const rows = (page) => cells(page, '#request-table tbody tr');
const seen = (page) => page.textContent('#request-seen');

export const tests = {
  async 'a link of a tracing system shows the request, and what is missing'(page, origin) {
    const asked = await answer(page);
    const times = 'from=2026-11-21T10:00:00Z&to=2026-11-21T10:00:01Z';
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=350000&${times}`);
    await page.waitForSelector('#request-table');
    for (const event of ['on-cpu', 'off-cpu']) {
      const [{ tag_filter, time_start, time_end }] = asked.filter(isOf(event));
      assert.equal(tag_filter, `trace_id='${TRACE}'`);
      // its last window is stored later
      assert.deepEqual([time_start, time_end], [1795255200, 1795255201 + 90]);
    }
    assert.deepEqual(await names(page), [
      'the request',
      `span ${A}`, 'waiting: lock', 'web', 'lock', 'on a CPU', 'web', 'parse',
      'not seen',
      `span ${B}`, 'waiting: socket', 'db', 'read',
    ]);
    const [all, missing] = await Promise.all(
      ['the request', 'not seen'].map((name) => widest(page, name)),
    );
    assert.ok(Math.abs(missing.width - 0.4 * all.width) < 1, `${missing.width} of ${all.width}`);
    assert.equal(await seen(page), '210 ms of 350 ms were seen. 140 ms (40.0 %) are missing.');
    assert.match(
      await page.textContent('#request-trust'),
      /estimate from 3 samples, each of which stands for 10.0 ms: its error is about ± 17.3 ms/,
    );
    assert.deepEqual(await rows(page), [
      ['all spans', '210 ms', '60.0 %', '', ''],
      ['waiting: lock', '150 ms', '42.9 %', '1', 'measured'],
      ['on a CPU', '30.0 ms', '8.6 %', '3', '± 17.3 ms'],
      ['waiting: socket', '30.0 ms', '8.6 %', '1', 'measured'],
      [`span ${A}`, '180 ms', '51.4 %', '', ''],
      ['waiting: lock', '150 ms', '42.9 %', '1', 'measured'],
      ['on a CPU', '30.0 ms', '8.6 %', '3', '± 17.3 ms'],
      [`span ${B}`, '30.0 ms', '8.6 %', '', ''],
      ['waiting: socket', '30.0 ms', '8.6 %', '1', 'measured'],
      ['missing', '140 ms', '40.0 %', '', ''],
    ]);
    await picture(page, 'request', { fullPage: true });
    await page.click('#request-reasons summary');
    assert.match(await page.textContent('#request-reasons'), /between two samples/);
    assert.deepEqual(await complaints(page), []);
  },
  async 'the request is faded until its own answer is there, and is all of it'(page, origin) {
    expectError(page, /status of 500/);
    const asked = await answer(page);
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=350000&pod=x&app_service=web`);
    await page.waitForSelector('#request-table');
    const { tag_filter, app_service } = asked.find(isOf('on-cpu'));
    assert.deepEqual([tag_filter, app_service], [`trace_id='${TRACE}'`, '']);
    assert.match(await page.textContent('#request-all'), /all of the request/);
    assert.equal(await page.getAttribute('#request', 'class'), '');
    await page.route('**/v1/profile/tree', (r) =>
      r.request().postDataJSON().group_by ? r.fulfill({ status: 500, json: {} }) : r.fallback());
    await page.click('#reload');
    await page.waitForSelector('main:not(.stale) #request.stale');
    assert.match(await seen(page), /^210 ms/);
  },
  async 'without its duration the page says so, and takes it'(page, origin) {
    await answer(page);
    await open(page, `${origin}/#trace_id=${TRACE}&view=request`);
    await page.waitForSelector('#request-table');
    assert.match(await seen(page), /^210 ms .* does not know how long the request took/);
    assert.ok(!(await names(page)).includes('not seen'));
    await page.fill('#duration', '420');
    await page.press('#duration', 'Enter');
    await until(async () => (await names(page)).includes('not seen'));
    assert.match(await seen(page), /210 ms \(50.0 %\) are missing/);
    assert.match(await page.evaluate(() => location.hash), /duration_us=420000/);
    await page.fill('#duration', '');
    await page.press('#duration', 'Enter');
    await until(async () => !(await names(page)).includes('not seen'));
    assert.doesNotMatch(await page.evaluate(() => location.hash), /duration_us/);
  },
  async 'each way has a colour of its own'(page, origin) {
    await answer(page);
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=350000`);
    await page.waitForSelector('#request-table');
    const ways = ['on a CPU', 'waiting: lock', 'waiting: socket', 'not seen'];
    const colours = new Set();
    for (const way of ways) colours.add(await pixelOf(page, way));
    assert.equal(colours.size, ways.length);
    for (const kind of ['CPU time', 'lock', 'socket', 'missing'])
      assert.ok((await page.textContent('#legend')).includes(kind), kind);
  },
  async 'threads that worked at the same time add up to more: nothing is missing'(page, origin) {
    await answer(page);
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=100000`);
    await page.waitForSelector('#request-table');
    assert.match(await seen(page), /adds up to 210 ms, and the request took 100 ms: several/);
    assert.ok(!(await names(page)).includes('not seen'));
    assert.ok((await boxes(page)).every((b) => b.width >= 0));
    assert.ok(!(await rows(page)).some(([what]) => what === 'missing'));
  },
  async 'nothing was seen: why that may be'(page, origin) {
    await answer(page, { cpu: NOTHING, waits: NOTHING });
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=2000`);
    await page.waitForSelector('#request-empty');
    const said = await page.textContent('#request-empty');
    for (const part of ['99 samples a second', 'traceContext: true', 'docs/trace-context.md'])
      assert.ok(said.includes(part), part);
    assert.equal(await page.isVisible('#chart'), false);
    assert.deepEqual(await complaints(page), []);
  },
  async 'no waits are stored: the page asks whether the target asks for them'(page, origin) {
    await answer(page, { waits: { ...NOTHING, summary: { samples: 0, profiles: 0 } } });
    await open(page, `${origin}/#trace_id=${TRACE}&duration_us=350000`);
    await page.waitForSelector('#request-table');
    assert.match(await page.textContent('#request-trust'), /does the target ask for off-cpu\?/);
  },
  async 'one request can be chosen if there is a trace, and left again'(page, origin) {
    const asked = await answer(page);
    await open(page, `${origin}/#pod=x`);
    await until(() => asked.length > 0);
    assert.equal(await page.isVisible('#view-request'), false);
    await open(page, `${origin}/#trace_id=${TRACE}`);
    await page.click('#view-request');
    await page.waitForSelector('#request-table');
    await page.click('#view-graph');
    await page.waitForSelector('#request', { state: 'detached' });
    await page.goBack();
    await page.waitForSelector('#request-table');
  },
  async 'a real request spent its time where its program did'(page, origin) {
    const request = startRequest();
    const asked = (path, event, trace, more = '') => {
      const now = Math.floor(Date.now() / 1000);
      return fetch(`${origin}/v1/profile/${path}`, {
        method: 'POST',
        body: JSON.stringify({
          profile_event_type: event, profile_language_type: 'eBPF', time_start: now - 600,
          time_end: now, tag_filter: `trace_id='${request.trace(trace)}'${more}`,
        }),
      });
    };
    const has = async (event, trace, text) =>
      (await (await asked('tree', event, trace)).text()).includes(text);
    const waitedUs = async (trace, wait) => {
      const answer = await asked('series', 'off-cpu', trace, ` AND wait='${wait}'`);
      const { result } = await answer.json();
      return result.groups.flatMap((g) => g.values).reduce((sum, us) => sum + us, 0);
    };
    await until(() => has('on-cpu', 1, 'parse_input'));
    await until(() => has('off-cpu', 1, 'wait: poll'));
    const durationUs = await request.serve();
    await until(() => has('on-cpu', 2, 'parse_input'));
    // the last that the request does is to wait 400 ms for an answer, which two windows may share
    await until(async () => (await waitedUs(2, 'socket')) > 350_000);
    await open(page, `${origin}/#trace_id=${request.trace(2)}&duration_us=${durationUs}`);
    await page.waitForSelector('#request-table');
    const all = await rows(page);
    const ms = (what, from = 0) => {
      const [, text] = all.slice(from).find(([name]) => name === what);
      return parseFloat(text) * (/ s$/.test(text) ? 1000 : 1);
    };
    const [first, second] = [2, 3].map((n) =>
      all.findIndex(([name]) => name === `span ${String(n).padStart(16, '0')}`),
    );
    assert.ok(first >= 0 && second >= 0, JSON.stringify(all));
    const used = ms('on a CPU', first);
    // 600 ms of CPU are about 120 samples: four standard errors are 220 ms
    assert.ok(Math.abs(used - 600) < 220, `${used} ms on a CPU`);
    // a busy machine lets the program come late to the lock, not early
    for (const [what, from] of [['waiting: lock', first], ['waiting: socket', second]])
      assert.ok(ms(what, from) > 100, `${what}: ${ms(what, from)} ms`);
    assert.ok(ms('missing') > 700 - 220, `${ms('missing')} ms are missing`);
    for (const name of ['parse_input', 'take_lock', 'read_answer', 'not seen'])
      assert.ok((await names(page)).includes(name), name);
    await picture(page, 'served', { fullPage: true });
  },
};
