#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Tests of the page, in a real Chromium over a real `podflame local` that profiles a real busy
// process. Needs root, Chromium and the built page: `make all && web/page_test.mjs`.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { complaints, launch, run, until, within } from './chromium.mjs';
import {
  answersAre,
  boxes,
  buildWorkload,
  choicesAre,
  choicesOf,
  clickFrame,
  differenceOf,
  hoverFrame,
  isStale,
  names,
  open,
  pixelOf,
  replyOf,
  replyOfTree,
  seriesOf,
  shows,
  startLocal,
  stopAll,
  table,
  tableIs,
  waitForData,
  widest,
} from './page_testing.mjs';

const tests = {
  async 'the graph shows the functions of the process'(page) {
    await shows(page, 'hot_function');
    const found = await names(page);
    for (const want of ['pagework', 'main', 'hot_function', 'cold_function'])
      assert.ok(found.includes(want), `${want} in ${found}`);
  },
  async 'the table has self and total, hot before cold'(page) {
    const rows = await page.$$eval('#functions tr', (all) =>
      all.map((r) => [...r.cells].map((c) => c.textContent)),
    );
    const at = (name) => rows.findIndex((r) => r[0] === name);
    assert.ok(at('hot_function') >= 0 && at('hot_function') < at('cold_function'));
    const share = parseFloat(rows[at('hot_function')][2]);
    assert.ok(share > 60 && share < 90, `hot_function has ${share} % itself, 75 expected`);
    if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });
  },
  async 'unit, samples and the store note are said'(page) {
    assert.match(
      await page.textContent('#total'),
      /^[\d.]+ (ms|s|min) in [\d,.]+ samples, [\d.]+ % with a whole stack/,
    );
    assert.equal(await page.textContent('#store-note'), 'kept for this test only');
  },
  async 'the browser runs and styles only what the page came with'(page, origin) {
    const answer = await fetch(origin);
    const violations = () => page.evaluate(() => window.violations);
    assert.doesNotMatch(answer.headers.get('content-security-policy'), /unsafe/);
    assert.deepEqual(await violations(), []);
    await page.evaluate(() => {
      const script = document.createElement('script');
      script.textContent = 'window.hit = 1';
      document.body.append(script);
      document.body.insertAdjacentHTML('beforeend', '<b style="color: red" onclick="">b</b>');
    });
    await until(async () => (await violations()).length === 3);
    assert.deepEqual((await violations()).sort(), [
      'script-src-attr', 'script-src-elem', 'style-src-attr',
    ]);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    await page.reload();
    await shows(page, 'hot_function');
  },
  async 'search marks frames and narrows the table'(page) {
    await page.fill('#search', 'cold_func');
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 1);
    assert.match(await page.textContent('#details'), /^found: /);
    await page.click('#reset');
    assert.ok((await page.$$('#functions tr')).length > 1);
  },
  async 'a click zooms in, reset zooms out'(page) {
    const width = async () => (await widest(page, 'cold_function')).width;
    const before = await width();
    await clickFrame(page, 'cold_function');
    await until(async () => (await width()) > 2 * before);
    await page.click('#reset');
    await until(async () => Math.abs((await width()) - before) < 2);
  },
  async 'choices come from the data and narrow it'(page) {
    const processes = await page.$$eval('#choice-app_service option', (all) =>
      all.map((o) => o.value),
    );
    assert.ok(processes.includes('pagework') && processes.includes('Total'), processes.join());
    await page.selectOption('#choice-app_service', 'Total');
    await shows(page, 'Total');
    assert.ok((await names(page)).includes('pagework'));
    await page.selectOption('#choice-app_service', '');
    await shows(page, 'hot_function');
  },
  async 'a time without data says why and where to look'(page) {
    await page.selectOption('#choice-range', 'custom');
    await page.fill('#from', '2020-01-01T00:00');
    await page.fill('#to', '2020-01-02T00:00');
    await page.dispatchEvent('#to', 'change');
    await page.waitForSelector('#empty');
    await page.selectOption('#choice-range', '900');
    await page.waitForSelector('#chart canvas');
  },
  async 'podflame query writes a whole pprof file'(_page, origin) {
    const url = ['--url', origin, '--from', '-10m', '--format', 'pprof'];
    const file = execFileSync(join(process.env.BUILD ?? 'build', 'podflame'), ['query', ...url]);

    assert.ok(gunzipSync(file).includes('hot_function'));
  },

  async 'a refused token asks to sign in and shows the command'(page, origin) {
    await page.route('**/v1/profile/*', (r) =>
      r.fulfill({ status: 401, body: '{"OPT_STATUS":"UNAUTHORIZED","DESCRIPTION":"no token"}' }),
    );
    await page.route('**/v1/info', (r) =>
      r.fulfill({
        status: 200,
        json: {
          version: 'x',
          cluster_name: 'c',
          auth_required: true,
          token_hint: 'kubectl create token t',
          store_note: '',
        },
      }),
    );
    await page.goto(origin);
    await page.waitForSelector('#sign-in[open]');
    assert.equal(await page.textContent('#token-hint'), 'kubectl create token t');
    await page.fill('#token', 'wrong');
    await page.click('#sign-in-form button');
    await page.waitForSelector('#sign-in[open] #sign-in-why');
    assert.equal(await page.textContent('#sign-in-why'), 'no token');
  },
  async 'short names on request; details and search keep the full ones'(page, origin) {
    const full = [
      'std::vector<int, std::allocator<int> >::push_back(int const&)',
      'std::operator<< <std::char_traits<char> >(std::ostream&)',
      '<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend::h0123456789abcdef',
      'core::num::<impl core::fmt::Display for u32>::fmt',
      'main.Map[go.shape.string,go.shape.int]',
      'A<int>::operator->',
      'main::{lambda(int)#1}::operator()(int) const',
      'std::string[abi:cxx11]',
      'a < b',
    ];
    const short = [
      'std::vector<…>::push_back(int const&)',
      'std::operator<< <…>(std::ostream&)',
      '<alloc::vec::Vec<…> as core::iter::Extend<…>>::extend',
      'core::num::<impl core::fmt::Display for u32>::fmt',
      'main.Map[…]',
      'A<…>::operator->',
      'main::{lambda(int)#1}::operator()(int) const',
      'std::string[abi:cxx11]',
      'a < b',
    ];
    const shown = () =>
      page.$$eval('#functions tr', (all) => all.map((r) => r.cells[0].textContent).sort());
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/info');
    await answersAre(page, () =>
      replyOfTree(
        ['p', 'root', 0,
          [full[0], 'app', 10, { file: 'stl_vector.h', line: 42, inlined: true }],
          ...full.slice(1).map((name) => [name, 'app', 10])],
      ),
    );
    await open(page, `${origin}/#`);
    await page.waitForFunction(
      (n) => document.querySelectorAll('#functions tr').length === n,
      full.length,
    );
    assert.deepEqual(await shown(), [...full].sort());
    await page.check('#short');
    assert.deepEqual(await shown(), [...short].sort());
    await shows(page, short[0]);
    await page.fill('#search', 'allocator<int>');
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 1);
    assert.equal(
      await page.$eval('#functions td', (e) => e.title),
      `${full[0]}\nprogram\nstl_vector.h:42`,
    );
    await hoverFrame(page, short[0]);
    await page.waitForFunction(
      (text) => document.querySelector('#details').textContent.startsWith(text),
      `${full[0]} (inlined, program, stl_vector.h:42) — `,
    );
    await page.uncheck('#short');
    await page.click('#reset');
    assert.deepEqual(await shown(), [...full].sort());
    await page.unroute('**/v1/profile/tree');
  },
  async 'a trace from the address, its links, and languages in their own form'(page, origin) {
    const trace = '0af7651916cd43dd8448eb211c80319c';
    let asked = '';
    await answersAre(page, (body) => {
      asked = body.tag_filter;
      return replyOfTree(
        ['java', 'root', 0, ['java/util/HashMap::get', 'jvm', 30], ['json.loads', 'python', 30],
          ['fib', 'lua', 30]],
      );
    });
    await choicesAre(page, { trace_id: [trace], pod: ['x'] });
    await page.route('**/v1/info', async (r) => {
      const answer = await r.fetch();
      await r.fulfill({
        response: answer,
        json: {
          ...(await answer.json()),
          links: { trace: 'https://traces.test/t/{trace_id}?from={start_ms}', logs: '' },
        },
      });
    });
    await open(page, `${origin}/#trace_id=${trace}`);
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 3);
    assert.equal(asked, `trace_id='${trace}'`);
    assert.equal(await page.inputValue('#choice-trace_id'), trace);
    assert.match(
      await page.getAttribute('#link-trace', 'href'),
      new RegExp(`^https://traces.test/t/${trace}\\?from=\\d+$`),
    );
    assert.equal(await page.isVisible('#link-logs'), false);
    const rows = await page.$$eval('#functions tr', (all) =>
      all.map((r) => [r.cells[0].textContent, r.cells[0].style.borderLeftColor]),
    );
    assert.deepEqual(rows.map((r) => r[0]).sort(), ['fib', 'java.util.HashMap.get', 'json.loads']);
    assert.equal(new Set(rows.map((r) => r[1])).size, 3);
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/info');
  },
  async 'the event that is shown is the one that is chosen, on-cpu at first'(page, origin) {
    await choicesAre(page, { profile_event_type: ['off-cpu', 'on-cpu'] });
    await open(page, `${origin}/#`);
    await page.waitForFunction(
      () => document.querySelectorAll('#choice-profile_event_type option').length === 2,
    );
    assert.equal(await page.inputValue('#choice-profile_event_type'), 'on-cpu');
    await choicesAre(page, { profile_event_type: ['off-cpu'] });
    await page.reload();
    await page.waitForFunction(
      () => document.querySelectorAll('#choice-profile_event_type option').length === 2,
    );
    assert.equal(
      await page.textContent('#choice-profile_event_type option:checked'),
      'on-cpu (no data)',
    );
    await page.unroute('**/v1/profile/choices');
  },
  async 'waits have a colour each; throttled and estimated stand beside them'(page, origin) {
    const asked = [];
    await answersAre(page, (body) => {
      asked.push(body);
      return replyOfTree(
        ['web', 'root', 0, ['main', 'app', 0,
          ['futex', 'kernel', 0, ['[wait: lock]', 'wait', 70_000]],
          ['cuStreamSynchronize', 'cuda', 0, ['[wait: disk]', 'wait', 30_000]]]],
        { summary: { throttled_us: 1_500_000, estimated: { share: 0.12, error: 3000 } } },
      );
    });
    await choicesAre(page, { profile_event_type: ['on-cpu', 'off-cpu'], wait: ['lock', 'disk'] });
    await open(page, `${origin}/#profile_event_type=off-cpu`);
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 5);
    const colours = await page.$$eval('#functions tr', (all) =>
      all.map((r) => r.cells[0].style.borderLeftColor),
    );
    assert.equal(new Set(colours).size, 5);
    assert.deepEqual(await page.$$eval('#legend span', (all) => all.map((e) => e.textContent)), [
      'program',
      'kernel',
      'CUDA',
      'lock',
      'disk',
    ]);
    assert.match(await page.textContent('#total'), /^100 ms in 9 samples/);
    assert.equal(
      await page.textContent('#throttled'),
      "throttled: the containers' CPU limits held them back for 1.50 s",
    );
    assert.equal(
      await page.textContent('#estimated'),
      'estimated: 12 % of what happened was measured, ±3 %',
    );
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.wait.png` });
    await page.selectOption('#choice-wait', 'lock');
    await page.waitForFunction(() => location.hash.includes('wait=lock'));
    await until(() => asked.at(-1).tag_filter === "wait='lock'");
    await page.selectOption('#choice-profile_event_type', 'on-cpu');
    await until(
      () => asked.at(-1).profile_event_type === 'on-cpu' && asked.at(-1).tag_filter === '',
    );
    assert.equal(await page.isVisible('#choice-wait'), false);
    await page.unroute('**/v1/profile/*');
  },
  async 'bytes have units of memory, and leaves their own colours'(page, origin) {
    await answersAre(page, () =>
      replyOfTree(
        ['web', 'root', 0, ['web', 'thread', 0, ['main', 'app', 0,
          ['malloc', 'library', 2 ** 30], ['java/lang/String', 'object', 2 ** 29]]]],
        { unit: 'bytes' },
      ),
    );
    await open(page, `${origin}/#profile_event_type=mem-alloc`);
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 3);
    assert.match(await page.textContent('#total'), /^1.50 GiB in 9 samples/);
    const rows = await page.$$eval('#functions tr', (all) =>
      all.map((r) => [r.cells[0].textContent, r.cells[1].textContent]),
    );
    assert.deepEqual(rows, [
      ['malloc', '1.00 GiB'],
      ['java/lang/String', '512 MiB'],
      ['main', '0 B'],
    ]);
    assert.deepEqual(await page.$$eval('#legend span', (all) => all.map((e) => e.textContent)), [
      'program',
      'library',
      'object',
      'thread',
    ]);
    assert.equal(await page.isVisible('#growth'), false);
    await page.unroute('**/v1/profile/*');
  },
  async 'the leak view: what grew between two times, from the address and by choice'(page, origin) {
    const MiB = 2 ** 20;
    const from = '2026-11-21T10:00:03', to = '2026-11-21T10:05:07';
    const seconds = (t) => Date.parse(t) / 1000;
    const asked = [];
    await answersAre(page, (body) => {
      asked.push(body);
      if (!body.before) return replyOf({ cache: 160 * MiB, table: 20 * MiB }, { unit: 'bytes' });
      return body.before.time_end === seconds(from)
        ? differenceOf({
            cache: [100 * MiB, 160 * MiB], buffer: [50 * MiB, 0], table: [0, 20 * MiB],
          })
        : differenceOf({ cache: [MiB, MiB] });
    });
    const rows = () =>
      page.$$eval('#functions tr', (all) =>
        all.map((r) => [0, 1, 3].map((i) => r.cells[i].textContent)),
      );
    const total = (text) =>
      page.waitForFunction((t) => document.querySelector('#total').textContent.startsWith(t), text);

    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=${to}`,
    );
    await total('80.0 MiB grown, 50.0 MiB shrunk, from ');
    assert.equal(asked.length, 1);
    const { before, ...after } = asked[0];
    assert.deepEqual([before.time_end, after.time_end], [seconds(from), seconds(to)]);
    assert.deepEqual([before, after].map((s) => s.time_end - s.time_start), [90, 90]);
    assert.equal(after.profile_event_type, 'mem-inuse');
    assert.deepEqual(await rows(), [
      ['cache', '60.0 MiB', '60.0 MiB'],
      ['table', '20.0 MiB', '20.0 MiB'],
      ['main', '0 B', '30.0 MiB'],
      ['buffer', '−50.0 MiB', '−50.0 MiB'],
    ]);
    await until(async () => (await names(page)).sort().join() === 'cache,main,table,web');
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.growth.png` });

    await page.uncheck('#growth');
    await total('180 MiB in 9 samples');
    assert.doesNotMatch(page.url(), /growth|before/);
    assert.equal(await page.isVisible('#grown_from'), false);
    await page.check('#growth');
    await total('80.0 MiB grown');
    await page.fill('#grown_from', '2026-11-21T09:00:01');
    await page.dispatchEvent('#grown_from', 'change');
    await total('0 B grown, 0 B shrunk');
    assert.deepEqual(await rows(), []);
    await page.fill('#grown_from', ''); // is no time
    await page.focus('#search');
    assert.equal(await page.inputValue('#grown_from'), '2026-11-21T09:00:01');
    await page.fill('#grown_from', from);
    await page.dispatchEvent('#grown_from', 'change');
    await total('80.0 MiB grown');
    assert.equal(
      new URLSearchParams(new URL(page.url()).hash.slice(1)).get('before_to'),
      `${new Date(from).toISOString().slice(0, 19)}Z`,
    );
    await page.unroute('**/v1/profile/*');
  },
  async 'losses are shown'(page, origin) {
    await page.route('**/v1/profile/tree', async (r) => {
      const answer = await r.fetch();
      const body = await answer.json();
      body.summary.losses = [
        { reason: 'counts_full', samples: 1234, time_ns: 0 },
        { reason: 'agent_down', samples: 0, time_ns: 2.5e9 },
        { reason: 'new', samples: 2 },
      ];
      await r.fulfill({ response: answer, json: body });
    });
    await open(page, `${origin}/#`);
    await page.waitForSelector('#losses');
    assert.equal(
      await page.textContent('#losses'),
      '1,234 samples lost: ' +
        "more different stacks in a second than the kernel's table holds (counts_full) · " +
        '2.5 s without data: no agent ran on the node (agent_down) · 2 samples lost: new',
    );
    await page.unroute('**/v1/profile/tree');
  },
  async 'a link has its time in UTC: it is the same in every time zone'(page, origin) {
    const tokyo = await (
      await page.context().browser().newContext({ timezoneId: 'Asia/Tokyo' })
    ).newPage();
    const asked = [];
    const hash = () => new URLSearchParams(new URL(tokyo.url()).hash.slice(1));
    const isAt = (from, to) =>
      until(
        () =>
          asked.at(-1)?.time_start === Date.parse(from) / 1000 &&
          asked.at(-1).time_end === Date.parse(to) / 1000,
      );

    tokyo.on('request', (r) => r.url().endsWith('/tree') && asked.push(r.postDataJSON()));
    await tokyo.goto(`${origin}/#range=custom&from=2026-11-21T10:00:03Z&to=2026-11-21T11:00:00Z`);
    await isAt('2026-11-21T10:00:03Z', '2026-11-21T11:00:00Z');
    assert.equal(await tokyo.inputValue('#from'), '2026-11-21T19:00:03');
    await tokyo.fill('#from', '2026-11-21T19:30:01');
    await tokyo.dispatchEvent('#from', 'change');
    await isAt('2026-11-21T10:30:01Z', '2026-11-21T11:00:00Z');
    assert.equal(hash().get('from'), '2026-11-21T10:30:01Z');
    await open(tokyo, `${origin}/#`); // a time that is chosen begins with the one that is shown
    await until(() => asked.at(-1).time_end - asked.at(-1).time_start === 900);
    const { time_start } = asked.at(-1);
    await tokyo.selectOption('#choice-range', 'custom');
    await tokyo.waitForFunction(() => location.hash.includes('from='));
    assert.ok(
      Math.abs(Date.parse(hash().get('from')) / 1000 - time_start) < 600,
      hash().get('from'),
    );
    await tokyo.context().close();
  },
  async 'the table is used with the keyboard, and says what it is sorted by'(page, origin) {
    await open(page, `${origin}/#`);
    await page.waitForSelector('#functions tr');
    assert.equal(await page.$eval('th[aria-sort]', (e) => e.textContent), 'Self');
    await page.focus('#sort-total');
    await page.keyboard.press('Enter');
    assert.equal(await page.$eval('th[aria-sort]', (e) => e.textContent), 'Total');
    await page.keyboard.press('Tab');
    const name = await page.$eval('#functions tr', (e) => e.cells[0].textContent);
    await page.keyboard.press('Enter');
    assert.match(await page.inputValue('#search'), new RegExp(`^"${name}" \\w+$`));
    await page.click('#reset');
  },
  async 'an error is told, and what is older than it is no answer'(page, origin) {
    await open(page, `${origin}/#`);
    await page.waitForSelector('#chart canvas');
    await page.route('**/v1/profile/tree', (r) =>
      r.fulfill({ status: 500, json: { OPT_STATUS: 'FAIL', DESCRIPTION: 'it took too long' } }),
    );
    await page.click('#reload');
    await page.waitForSelector('main.stale #error');
    assert.equal(await page.textContent('#error'), 'it took too long');
    await until(
      async () => (await page.$eval('#chart', (e) => getComputedStyle(e).opacity)) === '0.35',
    );
    await page.check('#short'); // no answer either
    await page.uncheck('#short');
    assert.ok((await isStale(page)) && (await page.isVisible('#error')));
    await page.unroute('**/v1/profile/tree');
    await page.click('#reload');
    await page.waitForSelector('main.stale', { state: 'detached' });
  },
  async 'every 10 s: an answer that takes longer is waited for'(page, origin) {
    const own = await (await page.context().browser().newContext()).newPage();
    const held = [];
    let asked = 0;
    await own.clock.install();
    await own.route('**/v1/profile/tree', (r) =>
      ++asked === 1 ? r.fulfill({ json: replyOf({ first: 1 }) }) : held.push(r),
    );
    await open(own, `${origin}/#`);
    await tableIs(own, 'first');
    await own.check('#live');
    await own.clock.runFor(10_000);
    await until(() => held.length === 1);
    await own.clock.runFor(35_000);
    await held[0].fulfill({ json: replyOf({ slow: 1 }) });
    await tableIs(own, 'slow');
    assert.equal(asked, 2);
    await until(async () => !(await own.isVisible('#busy')));
    await own.clock.runFor(10_000);
    await until(() => held.length === 2);
    await own.clock.runFor(60_000); // and one that never comes
    await until(
      async () => (await own.textContent('#error')) === 'the hub did not answer within 60 s',
    );
    assert.ok(await isStale(own));
    await own.context().close();
  },
  async 'a new choice ends the old question; the old answer is faded until the new one is there'(
    page,
    origin,
  ) {
    const held = [],
      failed = [];
    const onFailed = (r) => failed.push(r.url().split('/').at(-1));
    let slow = true;
    await choicesAre(page, { pod: ['new'] });
    await answersAre(page, () => replyOf({ new: 1 }));
    await open(page, `${origin}/#`);
    await tableIs(page, 'new');
    page.on('requestfailed', onFailed);
    await page.route('**/v1/profile/*', (r) => (slow ? held.push(r) : r.fallback()));
    await page.selectOption('#choice-range', '3600');
    await until(() => held.length === 3);
    assert.ok(await isStale(page));
    slow = false;
    await page.selectOption('#choice-range', '21600');
    await until(async () => !(await isStale(page)) && !(await page.isVisible('#busy')));
    // they must have ended by now, and not by their own timeout
    assert.deepEqual(failed.sort(), ['choices', 'series', 'tree']);
    for (const r of held)
      await r
        .fulfill({
          json: r.request().url().endsWith('choices')
            ? choicesOf({ pod: ['old'] })
            : r.request().url().endsWith('series')
              ? seriesOf({ old: [1] })
              : replyOf({ old: 1 }),
        })
        .catch(() => {});
    assert.deepEqual(await table(page), ['new']);
    assert.deepEqual(await page.$$eval('#choice-pod option', (all) => all.map((o) => o.value)), [
      '',
      'new',
    ]);
    assert.equal(await page.isVisible('#error'), false);
    page.off('requestfailed', onFailed);
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/profile/choices');
    await page.unroute('**/v1/profile/tree');
  },
  async 'a link that is pasted into an open page is followed'(page, origin) {
    let asked;
    await choicesAre(page, { pod_ns: ['shop', 'web'], profile_event_type: ['on-cpu', 'off-cpu'] });
    await answersAre(page, (body) => ((asked = body), replyOf({ f: 1 })));
    await open(page, `${origin}/#pod_ns=web&range=never`);
    await until(async () => asked?.tag_filter === "pod_ns='web'");
    assert.equal(asked.time_end - asked.time_start, 900);
    assert.equal(await page.inputValue('#choice-range'), '900');
    await page.goto(`${origin}/#pod_ns=shop&range=3600&profile_event_type=off-cpu&pod=p1`);
    await until(() => asked.tag_filter === "pod_ns='shop' AND pod='p1'");
    assert.equal(asked.profile_event_type, 'off-cpu');
    assert.equal(asked.time_end - asked.time_start, 3600);
    for (const [choice, value] of Object.entries({
      range: '3600',
      pod_ns: 'shop',
      pod: 'p1',
      profile_event_type: 'off-cpu',
    }))
      assert.equal(await page.inputValue(`#choice-${choice}`), value);
    assert.ok(await page.isVisible('#choice-wait'));
    await page.selectOption('#choice-range', '300'); // of what the link says only this
    await until(
      () =>
        asked.time_end - asked.time_start === 300 &&
        asked.tag_filter === "pod_ns='shop' AND pod='p1'",
    );
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/profile/choices');
    await page.unroute('**/v1/profile/tree');
  },
  async 'what is chosen is in the address, and "back" takes it back'(page, origin) {
    const asked = [];
    await choicesAre(page, { pod: ['web-1'] });
    await answersAre(page, (body) => (asked.push(body), replyOf({ big: 9000, small: 3000 })));
    await open(page, `${origin}/#`);
    await tableIs(page, 'big', 'small');
    const width = async () => (await widest(page, 'small'))?.width ?? 0;
    const full = await page.$eval('#chart', (e) => e.clientWidth);
    await page.check('#short');
    await page.click('#sort-total');
    await page.fill('#search', 'small');
    await page.fill('#search', '');
    await clickFrame(page, 'small');
    await until(async () => (await width()) > 0.99 * full);
    await page.selectOption('#choice-range', '3600');
    await until(() => asked.length === 2);
    await until(async () => Math.abs((await width()) / full - 0.25) < 0.01);
    assert.match(page.url(), /#range=3600&short=1&sort=total$/);
    await page.goBack();
    await until(() => asked.length === 3 && asked[2].time_end - asked[2].time_start === 900);
    await until(async () => (await width()) > 0.99 * full);
    assert.match(page.url(), /#zoom=small&short=1&sort=total$/);
    await page.goForward();
    await until(() => asked.length === 4);
    await page.goBack();
    await until(() => asked.length === 5);
    await page.reload(); // as from a link
    await until(async () => (await width()) > 0.99 * full);
    assert.equal(await page.isChecked('#short'), true);
    assert.equal(await page.$eval('th[aria-sort]', (e) => e.textContent), 'Total');
    for (const path of ['choices', 'tree']) await page.unroute(`**/v1/profile/${path}`);
  },
  async 'an address that is shared shows the same time whenever it is opened'(page, origin) {
    let asked;
    await answersAre(page, (body) => ((asked = body), replyOf({ f: 1 })));
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
    await open(page, `${origin}/#range=300&search=f`);
    await tableIs(page, 'f');
    const { time_start, time_end } = asked;
    await page.click('#share');
    await page.waitForSelector('text=The address is copied.');
    const address = await page.evaluate(() => navigator.clipboard.readText());
    await open(page, address);
    await until(() => asked.time_start === time_start && asked.time_end === time_end);
    assert.equal(await page.inputValue('#search'), 'f');
    // a page that came by plain http may not copy
    await page.evaluate(() => {
      navigator.clipboard.writeText = () => Promise.reject(new Error('no'));
    });
    await page.click('#share');
    await page.waitForSelector('#shared');
    assert.equal(await page.inputValue('#shared'), address);
    assert.equal(await page.evaluate(() => String(getSelection())), address);
    await page.unroute('**/v1/profile/tree');
  },
  async 'a token that expires: what is shown and typed stays, and the next token goes on'(
    page,
    origin,
  ) {
    let isExpired = false;
    await answersAre(page, () => replyOf({ big: 9000, small: 3000 }));
    await page.route('**/v1/profile/*', (r) =>
      isExpired ? r.fulfill({ status: 401, json: { DESCRIPTION: 'expired' } }) : r.fallback());
    await open(page, `${origin}/#`);
    await tableIs(page, 'big', 'small');
    await page.fill('#search', 'sma');
    await page.selectOption('#choice-range', 'custom');
    await page.waitForSelector('#from');
    isExpired = true;
    await page.fill('#from', '2026-11-21T10:00:01');
    await page.waitForSelector('#sign-in[open]');
    assert.equal(await page.textContent('#sign-in-why'), 'expired');
    assert.deepEqual(await table(page), ['small']);
    assert.equal(await isStale(page), true);
    await page.fill('#token', 'new');
    isExpired = false;
    await page.keyboard.press('Enter');
    await until(async () => !(await isStale(page)) && !(await page.isVisible('#sign-in')));
    assert.equal(await page.inputValue('#search'), 'sma');
    assert.equal(await page.inputValue('#from'), '2026-11-21T10:00:01');
    await page.evaluate(() => sessionStorage.clear());
    for (const path of ['*', 'tree']) await page.unroute(`**/v1/profile/${path}`);
  },
  async 'every tag that the hub stores can be in an address'(page, origin) {
    const { result } = await (await fetch(`${origin}/v1/profile/tags`)).json();
    const own = ['app_service', 'profile_event_type'];
    const names = result
      .filter((t) => t.stored && !t.same_as && !own.includes(t.name))
      .map((t) => (t.name.endsWith('.') ? `${t.name}x` : t.name));
    let asked = '';
    await answersAre(page, (body) => ((asked = body.tag_filter), replyOf({ f: 1 })));
    assert.ok(names.includes('pod_ns') && names.includes('k8s.label.x'));
    for (const name of names) {
      const event = result.find((t) => t.name === name)?.events?.[0] ?? 'on-cpu';
      await page.goto(`${origin}/#profile_event_type=${event}&${name}=1`);
      await until(() => asked === `${name}='1'`);
    }
    await page.unroute('**/v1/profile/tree');
  },
  async 'the leak view says what both of its snapshots lack'(page, origin) {
    const from = '2026-11-21T10:00:00Z', to = '2026-11-21T10:05:00Z';
    const same = { reason: 'live_evicted', samples: 3 };
    await answersAre(page, () =>
      differenceOf(
        { f: [1 << 20, 3 << 20] },
        {
          before_summary: {
            profiles: 1,
            losses: [same, { reason: 'resolve', samples: 7 }],
            short_by: 2048,
            truncated: true,
            notes: ['no such tag', 'early'],
            estimated: { share: 0.5, error: 3072 },
          },
          summary: {
            losses: [same],
            notes: ['no such tag'],
            estimated: { share: 0.8, error: 4096 },
          },
        },
      ),
    );
    let choices;
    await page.route(
      '**/v1/profile/choices',
      (r) => ((choices = r.request().postDataJSON()), r.continue()),
    );
    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=${to}`,
    );
    await tableIs(page, 'f', 'main');
    await until(() => choices);
    assert.deepEqual(
      [choices.time_start + 90, choices.time_end],
      [from, to].map((t) => Date.parse(t) / 1000),
    );
    await page.unroute('**/v1/profile/choices');
    assert.equal(
      await page.textContent('#losses'),
      "3 samples lost: more blocks were in use than the kernel's table holds (live_evicted) · " +
        'first time: 7 samples lost: the agent could not name the stacks (resolve) · ' +
        'first time: too many stacks: the smallest are added up as [others], ' +
        "and another stack's value is too small by at most 2.00 KiB",
    );
    assert.equal(await page.textContent('#notes'), 'no such tag · first time: early');
    assert.equal(
      await page.textContent('#estimated'),
      'estimated: 50 % of what happened was measured, ±5.00 KiB',
    );
    await page.unroute('**/v1/profile/tree');
  },
  async 'what shrank is in the table, however much grew'(page, origin) {
    const from = '2026-11-21T10:00:00Z';
    const grown = Array.from({ length: 600 }, (_, i) => [`g${i}`, [0, 1000 + i]]);
    await answersAre(page, () =>
      differenceOf({ shrunk: [5000, 0], ...Object.fromEntries(grown) }),
    );
    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=2026-11-21T10:05:00Z`,
    );
    await until(async () => (await table(page)).length === 500);
    const found = await table(page);
    assert.deepEqual([found[0], found.at(-1)], ['g599', 'shrunk']);
    assert.equal(await page.textContent('#more'), '102 more: search for them');
    await page.unroute('**/v1/profile/tree');
  },
  async 'a choice beyond those that are offered is not called without data'(page, origin) {
    const pods = Array.from({ length: 500 }, (_, i) => `pod-${i}`);
    await choicesAre(page, { pod: pods }, true);
    await open(page, `${origin}/#pod=rare`);
    const texts = () => page.$$eval('#choice-pod option', (all) => all.map((o) => o.text));
    await until(async () => (await texts()).length === 503);
    assert.deepEqual((await texts()).slice(0, 3), ['all', 'rare', 'pod-0']);
    assert.equal((await texts()).at(-1), '… 500 of more: choose a workload or a namespace first');
    await choicesAre(page, { pod: pods });
    await page.click('#reload');
    await until(async () => (await texts()).length === 502);
    assert.equal((await texts())[1], 'rare (no data)');
    assert.equal((await texts()).at(-1), 'pod-499');
    await page.unroute('**/v1/profile/choices');
  },
  async 'tags of single events are choices of these events only'(page, origin) {
    const filters = [];
    await choicesAre(page, { gpu_device: ['0', '1'], gpu_stream: ['default'], wait: ['lock'] });
    await page.route('**/v1/profile/tree', (r) => {
      filters.push(r.request().postDataJSON().tag_filter);
      return r.fulfill({ json: replyOf({ f: 1 }, { unit: 'bytes' }) });
    });
    const shown = () => page.$$eval('#choices label', (all) =>
      all.filter((l) => !l.hidden).map((l) => l.firstChild.textContent));
    await open(page, `${origin}/#profile_event_type=hbm-alloc&gpu_stream=default`);
    await until(async () => (await page.$$('#choice-gpu_device option')).length === 3);
    assert.deepEqual(
      (await shown()).slice(-5),
      ['GPU', 'GPU context', 'GPU stream', 'Event', 'Time'],
    );
    assert.equal(await page.inputValue('#choice-gpu_stream'), 'default');
    await page.selectOption('#choice-gpu_device', '1');
    await until(() => filters.at(-1) === "gpu_stream='default' AND gpu_device='1'");
    await open(page, `${origin}/#profile_event_type=off-cpu&gpu_device=1&wait=lock`);
    await until(() => filters.at(-1) === "wait='lock'");
    assert.deepEqual((await shown()).slice(-3), ['Waits for', 'Event', 'Time']);
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/profile/choices');
    await page.unroute('**/v1/profile/tree');
  },
  async 'rdma is the send queue until an operation is chosen'(page, origin) {
    const filters = [];
    await choicesAre(page, { rdma_operation: ['send', 'receive'] });
    await page.route('**/v1/profile/tree', (r) => {
      filters.push(r.request().postDataJSON().tag_filter);
      return r.fulfill({ json: replyOf({ f: 1 }, { unit: 'bytes' }) });
    });
    const texts = () => page.$$eval('#choice-rdma_operation option', (all) =>
      all.map((o) => o.text));
    await open(page, `${origin}/#profile_event_type=rdma`);
    await until(async () => (await texts()).length === 3);
    assert.deepEqual(await texts(), ['send queue', 'send', 'receive']);
    assert.equal(filters.at(-1), '');
    await page.selectOption('#choice-rdma_operation', 'receive');
    await until(() => filters.at(-1) === "rdma_operation='receive'");
    await page.unroute('**/v1/profile/choices');
    await page.unroute('**/v1/profile/tree');
  },
  async 'a click on a row finds that function, no other'(page, origin) {
    await answersAre(page, () =>
      replyOf({ read: 3000, read_all: 5000, Read: 2000 }, { process: 'read' }),
    );
    await open(page, `${origin}/#`);
    await tableIs(page, 'read_all', 'read', 'Read');
    await page.click('#functions tr:nth-child(2)');
    await tableIs(page, 'read');
    assert.equal(await page.textContent('#details'), 'found: 3.00 ms (30.0 %)');
    await page.fill('#search', 'read'); // a part of the process's name, too
    await tableIs(page, 'read_all', 'read', 'Read');
    assert.equal(await page.textContent('#details'), 'found: 10.0 ms (100.0 %)');
    await page.unroute('**/v1/profile/tree');
  },
  async 'a cut answer says what of it is wrong, and by how much'(page, origin) {
    let summary = { truncated: true, cut_stacks: 0, short_by: 1500 };
    await answersAre(page, () => replyOf({ f: 9000 }, { summary }));
    await open(page, `${origin}/#`);
    const says = (text) => until(async () => (await page.textContent('#losses')) === text);
    await says(
      'too many stacks: the smallest are added up as [others], ' +
        "and another stack's value is too small by at most 1.50 ms",
    );
    summary = { truncated: true, cut_stacks: 0, short_by: 0 };
    await page.click('#reload');
    await says('too many stacks: the smallest are added up as [others]');
    summary = { truncated: true, cut_stacks: 1234 };
    await page.click('#reload');
    await says(
      'too many frames: 1,234 of the smallest stacks end in [smaller stacks]; ' +
        'all totals are complete',
    );
    await page.unroute('**/v1/profile/tree');
  },
  async 'a hub that is away, and what is no hub, are told; when it is back the page is whole'(
    page,
    origin,
  ) {
    const says = (text) => until(async () => (await page.textContent('#error')).startsWith(text));
    await page.route('**/v1/**', (r) => r.abort('connectionrefused'));
    await open(page, `${origin}/#`);
    await says('the hub cannot be reached: ');
    await page.unroute('**/v1/**');
    await page.click('#reload');
    await until(async () => !(await page.isVisible('#error')) && !(await isStale(page)));
    assert.equal(await page.textContent('#store-note'), 'kept for this test only');
    await page.route('**/v1/profile/tree', (r) =>
      r.fulfill({ body: '<html>welcome</html>' }),
    );
    await page.click('#reload');
    await says('the answer does not come from a hub');
    await page.unroute('**/v1/profile/tree');
    await page.route('**/v1/profile/choices', (r) =>
      r.fulfill({ status: 503, json: { DESCRIPTION: 'too many at once' } }),
    );
    await page.click('#reload'); // only what else could be chosen is not known
    await says('too many at once');
    assert.equal(await isStale(page), false);
    await page.unroute('**/v1/profile/choices');
  },
  async 'what cannot be a token is asked for again'(page, origin) {
    await page.route('**/v1/info', (r) =>
      r.fulfill({
        json: {
          version: 'x',
          cluster_name: 'c',
          auth_required: true,
          token_hint: 't',
          store_note: '',
        },
      }),
    );
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.evaluate(() => sessionStorage.clear());
    await open(page, `${origin}/#`);
    await page.waitForSelector('#sign-in[open]');
    await page.fill('#token', 'schlüssel');
    await page.keyboard.press('Enter');
    await until(async () =>
      (await page.textContent('#sign-in-why')).startsWith('this is not a token'),
    );
    await page.fill('#token', ' abc ');
    await page.keyboard.press('Enter');
    await tableIs(page, 'f');
    await page.evaluate(() => sessionStorage.clear());
    await page.unroute('**/v1/profile/tree');
    await page.unroute('**/v1/info');
  },
  async 'the zoom outlives a newer answer, not another choice'(page, origin) {
    let n = 0;
    await answersAre(page, () => replyOf({ big: 9000 - n, [`call${n++}`]: 3000 }));
    const width = async () => (await widest(page, 'big'))?.width ?? 0;
    await open(page, `${origin}/#`);
    await tableIs(page, 'big', 'call0');
    const full = await page.$eval('#chart', (e) => e.clientWidth);
    await until(async () => Math.abs((await width()) / full - 0.75) < 0.01);
    await clickFrame(page, 'big');
    await until(async () => (await width()) > 0.99 * full);
    await page.click('#reload');
    await tableIs(page, 'big', 'call1');
    await until(async () => (await width()) > 0.99 * full);
    await page.selectOption('#choice-range', '3600');
    await tableIs(page, 'big', 'call2');
    await until(async () => Math.abs((await width()) / full - 0.75) < 0.01);
    await page.unroute('**/v1/profile/tree');
  },
  async 'frames are walked to with the keyboard; the line above says each, and its colour is drawn'(
    page,
    origin,
  ) {
    await answersAre(page, () => replyOf({ big: 9000, small: 3000 }));
    await open(page, `${origin}/#`);
    await shows(page, 'small');
    await page.focus('.flame-frames');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight']) await page.keyboard.press(key);
    assert.equal(
      await page.textContent('#details'),
      'small (program) — 3.00 ms (25.0 %), itself 3.00 ms',
    );
    const colour = await pixelOf(page, 'small');
    await page.fill('#search', 'small');
    await until(async () => (await pixelOf(page, 'small')) === 'rgb(230, 0, 230)');
    assert.equal(await page.textContent('#details'), 'found: 3.00 ms (25.0 %)');
    await page.click('#reset');
    await until(async () => (await pixelOf(page, 'small')) === colour);
    await page.check('#upward');
    assert.deepEqual((await boxes(page)).map((b) => [b.name, b.y]), [
      ['p', 18],
      ['big', 0],
      ['small', 0],
    ]);
    await page.uncheck('#upward');
    await page.unroute('**/v1/profile/tree');
  },
  async 'axe finds nothing, with a profile and without'(page, origin) {
    await answersAre(page, () => replyOf({ big: 9000, small: 3000 }));
    await open(page, `${origin}/#`);
    await shows(page, 'small');
    await clickFrame(page, 'small');
    assert.deepEqual(await complaints(page), []);
    await answersAre(page, () => ({ ...replyOf({}), result: null }));
    await open(page, `${origin}/#`);
    await page.waitForSelector('#empty');
    assert.deepEqual(await complaints(page), []);
    await page.unroute('**/v1/profile/tree');
  },
  async 'a name of a process is shown as text, and short'(page, origin) {
    const hostile = {
      '<img src=x onerror="window.hit = 1">': 9000,
      'safe\u202egpj.exe\n': 8000,
      [`std::map<${'x'.repeat(65536)}>`]: 7000,
    };
    const shown = ['<img src=x onerror="window.hit = 1">', 'safe\ufffdgpj.exe\ufffd'];
    await answersAre(page, () => replyOf(hostile));
    await open(page, `${origin}/#`);
    await until(async () => (await table(page)).length === 3);
    for (const found of [await table(page), (await names(page)).slice(1)]) {
      assert.deepEqual(found.slice(0, 2), shown);
      assert.equal(found[2].length, 1001);
    }
    assert.ok((await page.$eval('#functions tr:last-child td', (e) => e.title.length)) < 1100);
    for (const name of (await names(page)).slice(1)) {
      await hoverFrame(page, name);
      await until(async () =>
        (await page.textContent('#details')).startsWith(`${name} (program) — `),
      );
    }
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.unroute('**/v1/profile/tree');
  },
  async 'a narrow window has all of the page'(page, origin) {
    const size = page.viewportSize();
    await answersAre(page, () => replyOf({ a_function_with_a_name_of_some_length: 9000, g: 3000 }));
    await open(page, `${origin}/#`);
    await until(async () => (await table(page)).length === 2);
    await page.setViewportSize({ width: 400, height: 800 });
    await until(() =>
      page.evaluate(
        () =>
          document.documentElement.scrollWidth <= 400 &&
          document.querySelector('#chart canvas').clientWidth <= 400,
      ),
    );
    assert.ok((await page.$eval('#functions td', (e) => e.clientWidth)) > 150);
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.narrow.png` });
    await page.setViewportSize(size);
    await page.unroute('**/v1/profile/tree');
  },
  async 'the time line: values by pod, losses and starts, another time to choose'(page, origin) {
    const start = Date.parse('2026-11-21T10:00:00Z') / 1000;
    const address = `${origin}/#range=custom&from=2026-11-21T10:00:00Z&to=2026-11-21T10:10:00Z`;
    const asked = [];
    const clock = (minute) =>
      page.evaluate((s) => new Date(s * 1000).toLocaleTimeString(), start + 60 * minute);
    const said = () => page.textContent('.timeline-said');
    const times = () => asked.slice(-1).map((b) => [b.time_start - start, b.time_end - start])[0];
    const timesAre = (from, to) => until(() => times().join() === `${from},${to}`);
    // the colour at a minute, at a part of the height
    const pixel = (minute, height) =>
      page.$eval('.timeline-chart canvas', (canvas, [x, y]) => {
        const over = document.querySelector('.u-over').getBoundingClientRect();
        const all = canvas.getBoundingClientRect();
        const at = [over.x - all.x + x * over.width, over.y - all.y + y * over.height];
        const [r, g, b] = canvas.getContext('2d').getImageData(...at, 1, 1).data;
        return `rgb(${r}, ${g}, ${b})`;
      }, [minute / 10, height]);
    const over = async () => {
      const { x, y, width, height } = await (await page.$('.u-over')).boundingBox();
      return (minute) => [x + (minute / 10) * width, y + height / 2];
    };
    await answersAre(page, () => replyOf({ f: 1 }));
    await choicesAre(page, { pod: ['web-1'] });
    await page.route('**/v1/profile/series', (r) => {
      asked.push(r.request().postDataJSON());
      const values = { 'web-1': Array(10).fill(2e6), 'web-2': [...Array(9).fill(0), 6e6] };
      return r.fulfill({
        json: seriesOf(values, {
          start, step: 60, starts: [start + 541, start + 541],
          losses: [{
            reason: 'agent_down', samples: Array(10).fill(0),
            time_ns: [0, 0, 0, 5e9, 0, 0, 0, 0, 0, 0],
          }],
        }),
      });
    });
    await open(page, `${address}&by=pod`);
    await page.waitForSelector('.u-over');
    assert.equal(asked[0].group_by, 'pod');
    const legend = await page.$$eval('.timeline-legend > *', (all) =>
      all.map((e) => [e.textContent, e.style.borderLeftColor]));
    assert.deepEqual(legend.map((l) => l[0]), ['web-1', 'web-2']);
    assert.equal(await pixel(9.5, 0.95), legend[0][1]);
    assert.equal(await pixel(9.5, 0.4), legend[1][1]);
    assert.notEqual(await pixel(4.5, 0.4), legend[1][1]);
    const at = await over();
    await page.mouse.move(...at(9.5));
    await until(async () => (await said()).includes('8.00 s (web-1 2.00 s, web-2 6.00 s)'));
    assert.ok((await said()).startsWith(`${await clock(9)} to ${await clock(10)}: `));
    assert.equal(await page.$$eval('.timeline-marks button', (all) => all.length), 2);
    await page.focus('.timeline-loss');
    assert.match(await said(), /: 5\.0 s without data: no agent ran on the node \(agent_down\)$/);
    await page.keyboard.press('ArrowRight');
    assert.match(await said(), /: 2 processes began$/);
    assert.deepEqual(await complaints(page), []);
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.timeline.png` });

    await page.mouse.move(...at(2)); // drawn over a stretch of time
    await page.mouse.down();
    await page.mouse.move(...at(3));
    await page.mouse.move(...at(4));
    await page.mouse.up();
    await until(() => asked.length === 2);
    assert.ok(Math.abs(times()[0] - 120) <= 2 && Math.abs(times()[1] - 240) <= 2, `${times()}`);
    assert.match(decodeURIComponent(page.url()), /from=2026-11-21T10:0[12]:\d\dZ.*to=.*by=pod/);
    await page.goBack();
    await timesAre(0, 600);
    await page.click('text=zoom out');
    await timesAre(-600, 1200);
    await page.click('text=previous day');
    await timesAre(-600 - 86400, 1200 - 86400);
    await open(page, address);
    await timesAre(0, 600);
    assert.equal(asked.at(-1).group_by, '');
    await page.click('.timeline-table summary');
    const rows = await page.$$eval('.timeline-table tr', (all) => all.map((r) => r.textContent));
    assert.equal(rows.length, 11);
    assert.equal(rows[10], `${await clock(9)} to ${await clock(10)}8.00 s2.00 s6.00 s`);
    await page.focus('.timeline-table tr:last-child button');
    await page.keyboard.press('Enter');
    await timesAre(540, 600);
    await page.selectOption('#by', 'pod');
    await until(() => asked.at(-1).group_by === 'pod');
    assert.equal(await isStale(page), false);
    await page.click('.timeline-legend button');
    await until(() => asked.at(-1).tag_filter === "pod='web-1'");
    await page.unroute('**/v1/profile/*');
    for (const path of ['series', 'choices', 'tree']) await page.unroute(`**/v1/profile/${path}`);
  },
  async 'the time line of a real process, in a narrow window'(page, origin) {
    const size = page.viewportSize();
    await page.setViewportSize({ width: 390, height: 800 });
    await open(page, `${origin}/#by=app_service&range=300`);
    await page.waitForSelector('.u-over');
    await until(async () =>
      (await page.$$eval('.timeline-legend > *', (all) => all.map((e) => e.textContent))).includes(
        'pagework'));
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 390));
    assert.ok((await page.$eval('.u-over', (e) => e.clientWidth)) > 200);
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.timeline-narrow.png` });
    await page.setViewportSize(size);
  },
  async 'as large an answer as there is can be searched'(page, origin) {
    const strings = Array.from({ length: 50_000 }, (_, i) => `name_${i}`);
    const column = (value) => strings.map(value);
    const nodes = { function: [0], depth: [0], self: [0], samples: [0] };
    const add = (node, depth) => {
      nodes.function.push(node % strings.length);
      nodes.depth.push(depth);
      nodes.self.push(1);
      nodes.samples.push(1);
    };
    const errors = [];
    const onError = (e) => errors.push(e);
    for (let i = 1; i < 1000; i++) {
      add(i, 1);
      for (let j = 1; j <= 1000; j++) add(1000 * i + j, 2);
    }
    const big = {
      ...replyOf({}),
      result: {
        strings, kinds: ['root', 'app'], nodes, inlined: [],
        functions: {
          name: column((_, i) => i), kind: column((_, i) => (i ? 1 : 0)), module: column(() => -1),
          file: column(() => -1), line: column(() => 0),
        },
      },
    };
    page.on('pageerror', onError);
    await answersAre(page, () => big);
    await open(page, `${origin}/#`);
    await until(async () => (await table(page)).length === 500);
    await page.fill('#search', 'name');
    await until(async () => (await page.textContent('#details')) === 'found: 1000 ms (100.0 %)');
    assert.deepEqual(errors, []);
    page.off('pageerror', onError);
    await page.unroute('**/v1/profile/tree');
  },
};

let count = { passed: 0, failed: 0 };
try {
  buildWorkload();
  const origin = await startLocal();
  await waitForData(origin);
  const browser = await launch();
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  page.setDefaultTimeout(60_000);
  page.on('pageerror', (e) => console.log(`page error: ${e}`));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) =>
      window.violations.push(e.effectiveDirective));
  });
  await page.goto(origin);
  count = await run(tests, page, origin);
  await within(60, 'the end of the browser', browser.close());
} catch (e) {
  console.log(`not ok ${e.stack}`);
  count.failed++;
} finally {
  await stopAll();
}
console.log(`${count.passed} passed, ${count.failed} failed`);
process.exit(count.failed ? 1 : 0);
