// SPDX-License-Identifier: Apache-2.0
// Tests of the page: how a profile is shown.
import assert from 'node:assert/strict';
import { picture, until } from '../chromium.mjs';
import {
  answersAre,
  boxes,
  choicesAre,
  choose,
  clickFrame,
  fits,
  hoverFrame,
  legend,
  names,
  open,
  pixelOf,
  replyOf,
  replyOfTree,
  shows,
  table,
  tableIs,
  widest,
} from '../page_testing.mjs';

export const tests = {
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
      (text) => document.querySelector('#details')?.textContent.startsWith(text),
      `${full[0]} (inlined, program, stl_vector.h:42) — `,
    );
    await page.uncheck('#short');
    await page.click('#reset');
    assert.deepEqual(await shown(), [...full].sort());
  },
  async 'waits have a colour each; throttled and estimated stand beside them'(page, origin) {
    const asked = await answersAre(page, () =>
      replyOfTree(
        ['web', 'root', 0, ['main', 'app', 0,
          ['futex', 'kernel', 0, ['[wait: lock]', 'wait', 70_000]],
          ['cuStreamSynchronize', 'cuda', 0, ['[wait: disk]', 'wait', 30_000]]]],
        { summary: { throttled_us: 1_500_000, estimated: { share: 0.12, error: 3000 } } },
      ),
    );
    await choicesAre(page, { profile_event_type: ['on-cpu', 'off-cpu'], wait: ['lock', 'disk'] });
    await open(page, `${origin}/#profile_event_type=off-cpu`);
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 5);
    const colours = await page.$$eval('#functions tr', (all) =>
      all.map((r) => r.cells[0].style.borderLeftColor),
    );
    assert.equal(new Set(colours).size, 5);
    assert.deepEqual(await legend(page), [
      'program',
      'kernel',
      'CUDA',
      'lock',
      'disk',
    ]);
    assert.match(await page.textContent('#total'), /^100 ms of waiting in 9 samples/);
    assert.equal(
      await page.textContent('#throttled'),
      "throttled: the containers' CPU limits held them back for 1.50 s",
    );
    assert.equal(
      await page.textContent('#estimated'),
      'estimated: 12 % of what happened was measured, ±3 %',
    );
    await picture(page, 'wait');
    await choose(page, 'wait', 'lock');
    await page.waitForFunction(() => location.hash.includes('wait=lock'));
    await until(() => asked.at(-1).tag_filter === "wait='lock'");
    await page.selectOption('#choice-profile_event_type', 'on-cpu');
    await until(
      () => asked.at(-1).profile_event_type === 'on-cpu' && asked.at(-1).tag_filter === '',
    );
  },
  async 'in a wide window the table stands beside the graph, else below it'(page, origin) {
    const places = async () => {
      const [graph, table] = await Promise.all(
        ['#chart', '.functions'].map((s) => page.locator(s).boundingBox()));

      return { isBeside: table.x >= graph.x + graph.width, isBelow: table.y > graph.y + 20 };
    };

    await answersAre(page, () => replyOf({ big: 9000, small: 3000 }));
    await open(page, `${origin}/#`);
    await tableIs(page, 'big', 'small');
    assert.deepEqual(await places(), { isBeside: false, isBelow: true });
    await page.setViewportSize({ width: 1800, height: 900 });
    assert.deepEqual(await places(), { isBeside: true, isBelow: false });
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
    assert.match(await page.textContent('#total'), /^1.50 GiB allocated in 9 samples/);
    const rows = await page.$$eval('#functions tr', (all) =>
      all.map((r) => [r.cells[0].textContent, r.cells[1].textContent]),
    );
    assert.deepEqual(rows, [
      ['malloc', '1.00 GiB'],
      ['java/lang/String', '512 MiB'],
      ['main', '0 B'],
    ]);
    assert.deepEqual(await legend(page), [
      'program',
      'library',
      'object',
      'thread',
    ]);
    assert.equal(await page.isVisible('#growth'), false);
  },
  async 'a click on a row finds that function, no other'(page, origin) {
    await answersAre(page, () =>
      replyOf({ read: 3000, read_all: 5000, Read: 2000 }, { process: 'read' }),
    );
    await open(page, `${origin}/#`);
    await tableIs(page, 'read_all', 'read', 'Read');
    await page.click('#functions tr:nth-child(2)');
    await until(() => page.$('#functions [aria-selected=true]'));
    assert.equal(await page.textContent('#functions [aria-selected=true] td'), 'read');
    await tableIs(page, 'read_all', 'read', 'Read'); // the others stay to be chosen
    assert.equal(await page.textContent('#details'), 'found: 3.00 ms (30.0 %)');
    await page.fill('#search', 'read'); // a part of the process's name, too
    await tableIs(page, 'read_all', 'read', 'Read');
    assert.equal(await page.textContent('#details'), 'found: 10.0 ms (100.0 %)');
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
    assert.ok(await fits(page));
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
    await answersAre(page, () => big);
    await open(page, `${origin}/#`);
    await until(async () => (await page.getAttribute('#table', 'aria-rowcount')) === '50000');
    await page.fill('#search', 'name');
    await until(async () => (await page.textContent('#details')) === 'found: 1000 ms (100.0 %)');
  },
};
