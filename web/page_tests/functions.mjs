// SPDX-License-Identifier: Apache-2.0
// Tests of the page: what is folded, hidden and in focus; callers and callees, the table, the menu.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import {
  answersAre,
  fits,
  hoverFrame,
  names,
  open,
  replyOf,
  replyOfTree,
  seriesOf,
  shows,
  table,
  tableIs,
} from '../page_testing.mjs';

const READ = { file: 'read.c', line: 7 };
// Two threads of a pool; `parse` calls itself; `read` is called by two functions. 100 s in all.
const TREE = [
  'web', 'root', 0,
  ['exec-1', 'thread', 0,
    ['serve', 'app', 10e6,
      ['parse', 'app', 10e6, ['parse', 'app', 20e6, ['read', 'library', 5e6, READ]]],
      ['read', 'library', 15e6, READ]]],
  ['exec-2', 'thread', 0, ['serve', 'app', 40e6]],
];

const openTree = async (page, origin, address = '', members = {}) => {
  await answersAre(page, () => replyOfTree(TREE, members));
  await open(page, `${origin}/#from=2026-11-21T10:00:00Z&to=2026-11-21T10:01:40Z${address}`);
};

// The frames of a graph, by its element: name and share of the width.
const frames = (page, id) =>
  page.$$eval(`#${id}`, ([e]) =>
    e.flame.boxes().map((b) => [b.name, Math.round((100 * b.width) / e.clientWidth)]),
  );

const menuOf = async (page, name) => {
  await hoverFrame(page, name);
  await page.mouse.down({ button: 'right' });
  await page.mouse.up({ button: 'right' });
  await page.waitForSelector('[role=menu]');
};
const choose = (page, title) => page.click(`[role=menuitem]:text-is("${title}")`);

// There is one clipboard.
export const alone = ['the menu: keyboard, copies, and where the focus goes'];

export const tests = {
  async 'threads of a pool are one, each, or none; the address says which'(page, origin) {
    await openTree(page, origin);
    await shows(page, 'exec-N');
    assert.equal((await names(page)).filter((n) => n === 'serve').length, 1);
    await page.selectOption('#threads', 'each');
    await shows(page, 'exec-1');
    assert.equal((await names(page)).filter((n) => n === 'serve').length, 2);
    await page.selectOption('#threads', 'none');
    await until(async () => !(await names(page)).some((n) => n.startsWith('exec')));
    await page.reload();
    await shows(page, 'serve');
    assert.equal(await page.inputValue('#threads'), 'none');
    assert.ok(!(await names(page)).some((n) => n.startsWith('exec')));
    await page.check('#fold-recursion');
    await until(async () => (await names(page)).filter((n) => n === 'parse').length === 1);
  },
  async 'a frame is hidden and comes back; a subtree is the whole until it is not'(page, origin) {
    await openTree(page, origin);
    await shows(page, 'parse');
    await menuOf(page, 'parse');
    await choose(page, 'Hide this function');
    await until(async () => !(await names(page)).includes('parse'));
    assert.equal(await page.textContent('#chosen'), 'without parse×');
    await page.reload();
    await page.waitForSelector('#chosen');
    await page.click('#chosen button');
    await shows(page, 'parse');
    await menuOf(page, 'parse');
    await choose(page, 'Show only this subtree');
    await until(async () => (await page.textContent('#chosen')) === 'only parse×');
    await hoverFrame(page, 'read');
    await until(async () => /14\.3 %/.test(await page.textContent('#details'))); // 5 of 35
    await page.goBack();
    await until(async () => !(await page.$('#chosen')));
  },
  async 'stacks with a function, and idle waits, are left out of all that is shown'(page, origin) {
    const wait = (cause, us) => [`[wait: ${cause}]`, 'wait', us];
    const tree = [
      'web', 'root', 0,
      ['pool', 'thread', 0,
        ['java/util/concurrent/ThreadPoolExecutor::getTask', 'jvm', 0, wait('lock', 90e6)],
        ['App::load', 'jvm', 0, wait('lock', 6e6), wait('disk', 2e6)],
        ['App::store', 'jvm', 0, wait('lock', 2e6)]],
    ];
    await answersAre(page, () => replyOfTree(tree));
    await open(
      page,
      `${origin}/#profile_event_type=off-cpu&from=2026-11-21T10:00:00Z&to=2026-11-21T10:01:40Z`,
    );
    await shows(page, 'java.util.concurrent.ThreadPoolExecutor.getTask');
    await page.check('#no-idle');
    await until(async () => !(await names(page)).some((n) => n.endsWith('getTask')));
    assert.match(await page.textContent('#total'), /^10\.0 s/);
    assert.equal(
      await page.textContent('#chosen'), 'without idle waits×90.0 % of the selection is left out',
    );
    await menuOf(page, 'App.load');
    await choose(page, 'Leave out all stacks with it');
    await until(async () => (await page.textContent('#total')).startsWith('2.00 s'));
    assert.deepEqual(await names(page), ['web', 'pool', 'App.store', '[wait: lock]']);
    assert.match(await page.textContent('#chosen'), /without stacks with App\.load×98\.0 %/);
    await page.reload();
    await until(async () => (await page.textContent('#total')).startsWith('2.00 s'));
    await picture(page, 'left-out');
    await menuOf(page, 'App.store');
    await choose(page, 'Leave out all stacks with it');
    await until(async () => (await page.textContent('#total')).startsWith('0'));
    assert.deepEqual(await complaints(page), []);
    for (let left = 3; left > 0; left--) {
      await page.click('#chosen button');
      await until(async () => (await page.$$('#chosen button')).length === left - 1);
    }
    await until(async () => (await page.textContent('#total')).startsWith('1.67 min'));
  },
  async 'the menu: keyboard, copies, and where the focus goes'(page, origin) {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
    await openTree(page, origin);
    await shows(page, 'serve');
    const copied = () => page.evaluate(() => navigator.clipboard.readText());
    await page.focus('.flame-frames');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'Shift+F10'])
      await page.keyboard.press(key);
    await page.waitForSelector('[role=menu]');
    assert.deepEqual(await complaints(page), []);
    assert.equal(await page.getAttribute('[role=menu]', 'aria-label'), 'what to do with serve');
    await page.keyboard.press('Escape');
    assert.equal(await page.$('[role=menu]'), null);
    assert.equal(await page.evaluate(() => document.activeElement.className), 'flame-frames');
    await page.keyboard.press('ContextMenu');
    for (const key of ['End', 'ArrowUp', 'Enter']) await page.keyboard.press(key);
    await until(async () => (await copied()) === 'serve');
    await page.waitForSelector('[role=status]:text-is("The name is copied.")');
    await page.keyboard.press('ContextMenu');
    for (const key of ['End', 'Enter']) await page.keyboard.press(key);
    await until(async () => (await copied()) === 'web;exec-N;serve 100000000');
    await menuOf(page, 'read');
    await choose(page, 'Copy read.c:7');
    await until(async () => (await copied()) === 'read.c:7');
  },
  async 'callers above and callees below a function, from a frame and from a row'(page, origin) {
    await openTree(page, origin);
    await shows(page, 'read');
    await menuOf(page, 'read');
    await choose(page, 'Callers and callees');
    await page.waitForSelector('#callers');
    assert.deepEqual(await frames(page, 'callers'), [
      ['read', 100], ['serve', 75], ['exec-N', 75], ['parse', 25], ['parse', 25], ['serve', 25],
      ['exec-N', 25],
    ]);
    assert.deepEqual(await frames(page, 'callees'), [['read', 100]]);
    const { y, height } = await (await page.$('#callers')).boundingBox();
    await page.mouse.move(40, y + height - 9);
    await until(
      async () =>
        (await page.textContent('#details')) === 'read (library, read.c:7) — 20.0 s (20.0 %)',
    );
    await page.mouse.move(40, y + height - 27);
    await until(async () =>
      /^serve .* 15\.0 s \(15\.0 %, 75\.0 % of its callee\)$/.test(
        await page.textContent('#details'),
      ),
    );
    await page.focus('#table');
    while ((await page.textContent('#functions .active td')) !== 'parse')
      await page.keyboard.press('ArrowUp');
    await page.keyboard.press('ContextMenu');
    await choose(page, 'Callers and callees');
    await until(async () => (await frames(page, 'callees')).join() ===
      'parse,100,parse,71,read,14');
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'sandwich');
    await page.goBack();
    await until(async () => (await page.textContent('.sandwich-between')).includes('read'));
  },
  async 'functions without a name are apart by where they begin, if that is chosen'(page, origin) {
    await answersAre(page, ({ unnamed }) =>
      replyOf(
        unnamed === 'start'
          ? { '7z.so+0x1000': 3000, '7z.so+0x1100': 1000 }
          : { '[/usr/lib/7z.so]': 4000 },
      ),
    );
    await open(page, `${origin}/#`);
    await tableIs(page, '[/usr/lib/7z.so]');
    await page.check('#by-start');
    await tableIs(page, '7z.so+0x1000', '7z.so+0x1100');
    await page.reload();
    await tableIs(page, '7z.so+0x1000', '7z.so+0x1100');
    assert.ok(await page.isChecked('#by-start'));
    await page.uncheck('#by-start');
    await tableIs(page, '[/usr/lib/7z.so]');
  },
  async 'values per second, and per second of CPU time'(page, origin) {
    await openTree(page, origin, '&per=second');
    await tableIs(page, 'serve', 'parse', 'read');
    const cells = () =>
      page.$eval('#functions tr', (e) => [...e.cells].map((c) => c.textContent));
    assert.deepEqual(await cells(), ['serve', '0.50 CPUs', '50.0 %', '1.00 CPUs', '100.0 %']);
    await page.selectOption('#per', 'all');
    await until(async () => (await cells())[1] === '50.0 s');

    const asked = [];
    await page.route('**/v1/profile/series', (r) => {
      asked.push(r.request().postDataJSON());
      return r.fulfill({ json: seriesOf({ '': [3e6, 1e6] }) });
    });
    await answersAre(page, () => replyOf({ f: 8 << 20 }, { unit: 'bytes' }));
    await open(page, `${origin}/#profile_event_type=mem-alloc&app_service=web&per=cpu-second`);
    await page.waitForSelector('#functions tr');
    await until(async () => (await cells())[1] === '2.00 MiB/CPU s');
    const { app_service, group_by } = asked.find((a) => a.profile_event_type === 'on-cpu');
    assert.deepEqual([app_service, group_by], ['web', '']);
  },
  async 'a search is an expression or a text, and the page says which'(page, origin) {
    await answersAre(page, () =>
      replyOf({ 'main.(*Server).Serve': 4000, 'std::map::at': 3000, Get: 2000, get_all: 1000 }),
    );
    await open(page, `${origin}/#`);
    await page.fill('#search', '^(std|get)');
    await tableIs(page, 'std::map::at', 'Get', 'get_all');
    await page.fill('#search', 'Get');
    await tableIs(page, 'Get');
    await page.fill('#search', 'main.(*Server');
    await tableIs(page, 'main.(*Server).Serve');
    assert.equal(
      await page.textContent('.functions p'),
      '1 of 4 functions; the search is no regular expression (Nothing to repeat): the page seeks ' +
        'the text',
    );
    assert.equal(await page.textContent('#details'), 'found: 4.00 ms (40.0 %)');
  },
  async 'of 100,000 functions the table has those in the window'(page, origin) {
    const n = 100_000;
    await answersAre(page, () =>
      replyOf(Object.fromEntries(Array.from({ length: n }, (_, i) => [`f${i}`, n - i]))),
    );
    await open(page, `${origin}/#view=table`);
    await until(async () => (await table(page))[0] === 'f0');
    assert.equal(await page.getAttribute('#table', 'aria-rowcount'), `${n + 1}`);
    await page.$eval('.table-window', (e) => (e.scrollTop = 50_000 * 24));
    await until(async () => (await table(page)).includes('f50000'));
    assert.ok((await table(page)).length < 100);
    await page.focus('#table');
    await page.keyboard.press('End');
    await until(async () => (await table(page)).at(-1) === `f${n - 1}`);
    const active = await page.$eval('#functions .active', (e) => {
      const { bottom } = e.getBoundingClientRect();
      return [e.cells[0].textContent, bottom <= e.closest('.table-window')
        .getBoundingClientRect().bottom];
    });
    assert.deepEqual(active, [`f${n - 1}`, true]);
    assert.deepEqual(await complaints(page), []);
    await page.click('#sort-name');
    await until(async () => (await table(page))[0] === 'f0');
    assert.equal(await page.getAttribute('th[aria-sort]', 'aria-sort'), 'ascending');
  },
  async 'a narrow window has all of it'(page, origin) {
    await page.setViewportSize({ width: 390, height: 800 });
    for (const view of ['table', 'sandwich']) {
      await openTree(page, origin, `&view=${view}&function=read&function_kind=library`);
      await page.waitForSelector('#functions tr');
      assert.ok(await fits(page), view);
      await picture(page, `${view}-narrow`, { fullPage: true });
    }
  },
};
