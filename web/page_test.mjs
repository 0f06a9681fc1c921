#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// The page in a real Chromium over a real `podflame local` that profiles a real busy process.
import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve as absolute } from 'node:path';
import { createRequire } from 'node:module';
import assert from 'node:assert/strict';

const build = process.env.BUILD ?? 'build';
const require = createRequire(absolute(build, 'web/package.json'));
const { chromium } = require('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const dir = mkdtempSync(join(tmpdir(), 'podflame-page-'));
const children = [];

function start(command, args, options) {
  const child = spawn(command, args, options);
  children.push(child);
  return child;
}

function buildWorkload() {
  writeFileSync(join(dir, 'w.c'), `
    static volatile unsigned long sink;
    __attribute__((noinline)) void hot_function(void) { for (int i = 0; i < 3000000; i++) sink += i; sink++; }
    __attribute__((noinline)) void <cold>(void) { for (int i = 0; i < 1000000; i++) sink ^= i; sink++; }
    int main(void) { for (;;) { hot_function(); cold_function(); } }`.replace('<cold>', 'cold_function'));
  execFileSync('gcc', ['-O0', '-o', join(dir, 'pagework'), join(dir, 'w.c')]);
  start(join(dir, 'pagework'), [], { stdio: 'ignore' });
}

function startLocal() {
  writeFileSync(join(dir, 'c.yaml'),
    'window: 2s\napi: {port: 0}\nstore: {note: "kept for this test only"}\n' +
    'static_config: {ebpf: {on-cpu-profile: {frequency: 199, regex: ^pagework}}}\n');
  const local = start(join(build, 'podflame'), ['local', '--config', join(dir, 'c.yaml'), '--data', join(dir, 'data')], { stdio: ['ignore', 'ignore', 'pipe'] });

  return new Promise((resolve, reject) => {
    let said = '';
    local.stderr.on('data', (d) => {
      said += d;
      const m = /http:\/\/127\.0\.0\.1:(\d+)\//.exec(said);
      if (m) resolve(`http://127.0.0.1:${m[1]}`);
    });
    local.on('exit', (code) => reject(new Error(`podflame local ended with ${code}: ${said}`)));
  });
}

// An answer of the page's own question in which shares mean something: some CPU seconds of the workload. The first
// windows have a few samples of a process whose files were not read yet.
async function waitForData(origin) {
  let samples = 0;
  for (const end = Date.now() + 180_000; Date.now() < end; ) {
    const now = Math.floor(Date.now() / 1000);
    const r = await fetch(`${origin}/v1/profile/ProfileTracing`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ profile_event_type: 'on-cpu', profile_language_type: 'eBPF', time_start: now - 600, time_end: now, app_service: 'pagework' }),
    });
    const reply = await r.json();
    samples = reply.summary?.samples ?? 0;
    if (samples >= 400 && ['hot_function', 'cold_function'].every((f) => reply.result.some((n) => n.profile_location_str === f))) return;
    await new Promise((done) => setTimeout(done, 500));
  }
  throw new Error(`${samples} samples of pagework within 180 s`);
}

const names = (page) => page.$$eval('#chart .d3-flame-graph-label', (all) => all.map((e) => e.textContent));

const tests = {
  async 'the graph shows the functions of the process'(page) {
    await page.waitForSelector('#chart rect');
    await page.waitForFunction(() => [...document.querySelectorAll('#chart .d3-flame-graph-label')].some((e) => e.textContent === 'hot_function'));
    const found = await names(page);
    for (const want of ['pagework', 'main', 'hot_function', 'cold_function']) assert.ok(found.includes(want), `${want} in ${found}`);
  },
  async 'the table has self and total, hot before cold'(page) {
    const rows = await page.$$eval('#functions tr', (all) => all.map((r) => [...r.cells].map((c) => c.textContent)));
    const at = (name) => rows.findIndex((r) => r[0] === name);
    assert.ok(at('hot_function') >= 0 && at('hot_function') < at('cold_function'));
    const share = parseFloat(rows[at('hot_function')][2]);
    assert.ok(share > 60 && share < 90, `hot_function has ${share} % itself, 75 expected`);
  },
  async 'unit, samples and the store note are said'(page) {
    assert.match(await page.textContent('#total'), /\(microseconds\) in [\d,.]+ samples, [\d.]+ % with a whole stack/);
    assert.equal(await page.textContent('#store-note'), 'kept for this test only');
  },
  async 'search marks frames and narrows the table'(page) {
    await page.fill('#search', 'COLD_func');
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 1);
    assert.match(await page.textContent('#details'), /^found: /);
    await page.click('#reset');
    assert.ok((await page.$$('#functions tr')).length > 1);
  },
  async 'a click zooms in, reset zooms out'(page) {
    // the widest: the first samples, without tables, are a tower of their own
    const widest = (click) => page.evaluate((click) => {
      const width = (e) => Number(e.getAttribute('width'));
      const g = [...document.querySelectorAll('#chart g.frame')]
        .filter((e) => e.querySelector('.d3-flame-graph-label')?.textContent === 'cold_function')
        .sort((a, b) => width(b) - width(a))[0];
      const now = width(g);
      if (click) g.dispatchEvent(new MouseEvent('click', { bubbles: true }));
      return now;
    }, click);
    const becomes = async (right) => {
      for (const end = Date.now() + 60_000; !right(await widest()); await new Promise((done) => setTimeout(done, 100)))
        assert.ok(Date.now() < end, 'the width of cold_function');
    };
    const before = await widest(true);
    await becomes((w) => w > 2 * before);
    await page.click('#reset');
    await becomes((w) => Math.abs(w - before) < 2);
  },
  async 'choices come from the data and narrow it'(page) {
    const processes = await page.$$eval('#choice-app_service option', (all) => all.map((o) => o.value));
    assert.ok(processes.includes('pagework') && processes.includes('Total'), processes.join());
    await page.selectOption('#choice-app_service', 'Total');
    await page.waitForFunction(() => document.querySelector('#chart .d3-flame-graph-label')?.textContent === 'Total' ||
      [...document.querySelectorAll('#chart .d3-flame-graph-label')].some((e) => e.textContent === 'Total'));
    assert.ok((await names(page)).includes('[p] pagework'));
    await page.selectOption('#choice-app_service', '');
    await page.waitForFunction(() => [...document.querySelectorAll('#chart .d3-flame-graph-label')].some((e) => e.textContent === 'hot_function'));
  },
  async 'a time without data says why and where to look'(page) {
    await page.selectOption('#choice-range', 'custom');
    await page.fill('#from', '2020-01-01T00:00');
    await page.fill('#to', '2020-01-02T00:00');
    await page.dispatchEvent('#to', 'change');
    await page.waitForSelector('#empty:not([hidden])');
    await page.selectOption('#choice-range', '900');
    await page.waitForSelector('#chart rect');
  },
  async 'a refused token asks to sign in and shows the command'(page, origin) {
    await page.route('**/v1/profile/*', (r) => r.fulfill({ status: 401, body: '{"OPT_STATUS":"UNAUTHORIZED","DESCRIPTION":"no token"}' }));
    await page.route('**/v1/info', (r) => r.fulfill({ status: 200, body: '{"version":"x","cluster_name":"c","auth_required":true,"token_hint":"kubectl create token t","store_note":""}' }));
    await page.goto(origin);
    await page.waitForSelector('#sign-in[open]');
    assert.equal(await page.textContent('#token-hint'), 'kubectl create token t');
    await page.fill('#token', 'wrong');
    await page.click('#sign-in-form button');
    await page.waitForSelector('#sign-in[open] #sign-in-why:not([hidden])');
    assert.equal(await page.textContent('#sign-in-why'), 'no token');
  },
  async 'short names on request; details and search keep the full ones'(page, origin) {
    const full = [
      'std::vector<int, std::allocator<int> >::push_back(int const&)', 'std::operator<< <std::char_traits<char> >(std::ostream&)',
      '<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend::h0123456789abcdef', 'core::num::<impl core::fmt::Display for u32>::fmt',
      'main.Map[go.shape.string,go.shape.int]', 'A<int>::operator->', 'main::{lambda(int)#1}::operator()(int) const',
      'std::string[abi:cxx11]', 'a < b',
    ];
    const short = [
      'std::vector<…>::push_back(int const&)', 'std::operator<< <…>(std::ostream&)',
      '<alloc::vec::Vec<…> as core::iter::Extend<…>>::extend', 'core::num::<impl core::fmt::Display for u32>::fmt',
      'main.Map[…]', 'A<…>::operator->', 'main::{lambda(int)#1}::operator()(int) const', 'std::string[abi:cxx11]', 'a < b',
    ];
    const shown = () => page.$$eval('#functions tr', (all) => all.map((r) => r.cells[0].textContent).sort());
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/info');
    await page.route('**/v1/profile/ProfileTracing', (r) => r.fulfill({ json: {
      OPT_STATUS: 'SUCCESS', DESCRIPTION: '', unit: 'microseconds', summary: { samples: 9 },
      result: {
        functions: ['p', ...full], function_types: ['P', ...full.map(() => 'A')],
        node_values: { values: [[0, -1, 0, 90], ...full.map((_, i) => [i + 1, 0, 10, 10])] },
      },
      sources: { files: ['stl_vector.h'], values: [[-1, 0], [0, 42], ...full.slice(1).map(() => [-1, 0])], inlined_nodes: [1] },
    } }));
    await page.goto(`${origin}/#`);
    await page.reload();
    await page.waitForFunction((n) => document.querySelectorAll('#functions tr').length === n, full.length);
    assert.deepEqual(await shown(), [...full].sort());
    await page.check('#short');
    assert.deepEqual(await shown(), [...short].sort());
    await page.waitForFunction((want) => [...document.querySelectorAll('#chart .d3-flame-graph-label')].some((e) => e.textContent === want), short[0]);
    await page.fill('#search', 'allocator<int>');
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 1);
    assert.equal(await page.$eval('#functions td', (e) => e.title), `${full[0]}\nstl_vector.h:42`);
    await page.evaluate((name) => {
      const g = [...document.querySelectorAll('#chart g.frame')].find((e) => e.querySelector('.d3-flame-graph-label')?.textContent === name);
      g.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
    }, short[0]);
    await page.waitForFunction((text) => document.querySelector('#details').textContent.startsWith(text), `${full[0]} (inlined, stl_vector.h:42) — `);
    await page.uncheck('#short');
    await page.click('#reset');
    assert.deepEqual(await shown(), [...full].sort());
    await page.unroute('**/v1/profile/ProfileTracing');
  },
  async 'a trace from the address, its links, and languages in their own form'(page, origin) {
    const trace = '0af7651916cd43dd8448eb211c80319c';
    let asked = '';
    await page.route('**/v1/profile/ProfileTracing', (r) => {
      asked = r.request().postDataJSON().tag_filter;
      return r.fulfill({ json: {
        OPT_STATUS: 'SUCCESS', DESCRIPTION: '', unit: 'microseconds', summary: { samples: 9 },
        result: {
          functions: ['java', 'java/util/HashMap::get', 'json.loads', 'fib'], function_types: ['P', 'A', 'A', 'A'],
          node_values: { values: [[0, -1, 0, 90], [1, 0, 30, 30], [2, 0, 30, 30], [3, 0, 30, 30]] },
        },
        sources: { files: [], values: [[-1, 0], [-1, 0], [-1, 0], [-1, 0]], inlined_nodes: [], languages: { jvm: [1], python: [2], lua: [3] } },
      } });
    });
    await page.route('**/v1/profile/values', (r) => r.fulfill({ json: { result: [{ value: r.request().postDataJSON().tag === 'trace_id' ? trace : 'x', samples: 9 }] } }));
    await page.route('**/v1/info', async (r) => {
      const answer = await r.fetch();
      await r.fulfill({ response: answer, json: { ...(await answer.json()), links: { trace: 'https://traces.test/t/{trace_id}?from={start_ms}', logs: '' } } });
    });
    await page.goto(`${origin}/#trace_id=${trace}`);
    await page.reload();
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 3);
    assert.equal(asked, `trace_id='${trace}'`);
    assert.equal(await page.inputValue('#choice-trace_id'), trace);
    assert.match(await page.getAttribute('#link-trace', 'href'), new RegExp(`^https://traces.test/t/${trace}\\?from=\\d+$`));
    assert.equal(await page.isVisible('#link-logs'), false);
    const rows = await page.$$eval('#functions tr', (all) => all.map((r) => [r.cells[0].textContent, r.cells[0].style.borderLeftColor]));
    assert.deepEqual(rows.map((r) => r[0]).sort(), ['fib', 'java.util.HashMap.get', 'json.loads']);
    assert.equal(new Set(rows.map((r) => r[1])).size, 3);
    await page.unroute('**/v1/profile/*');
    await page.unroute('**/v1/info');
  },
  async 'losses are shown'(page, origin) {
    await page.route('**/v1/profile/ProfileTracing', async (r) => {
      const answer = await r.fetch();
      const body = await answer.json();
      body.summary.losses = [{ reason: 'ring_full', samples: 1234, time_ns: 0 }];
      await r.fulfill({ response: answer, json: body });
    });
    await page.goto(`${origin}/#`);
    await page.reload();
    await page.waitForSelector('#losses:not([hidden])');
    assert.match(await page.textContent('#losses'), /samples lost: ring_full/);
  },
};

let passed = 0, failed = 0;
try {
  buildWorkload();
  const origin = await startLocal();
  await waitForData(origin);
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: flags });
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  page.setDefaultTimeout(60_000);
  page.on('pageerror', (e) => console.log(`page error: ${e}`));
  await page.goto(origin);
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test(page, origin);
      console.log(`ok ${name}`);
      passed++;
    } catch (e) {
      console.log(`not ok ${name}: ${e.stack}`);
      failed++;
    }
    if (process.env.SCREENSHOT && name.startsWith('the table')) await page.screenshot({ path: process.env.SCREENSHOT });
  }
  await browser.close();
} catch (e) {
  console.log(`not ok ${e.stack}`);
  failed++;
} finally {
  for (const c of children) c.kill('SIGTERM');
  await new Promise((done) => setTimeout(done, 300));
  rmSync(dir, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
