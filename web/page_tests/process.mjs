// SPDX-License-Identifier: Apache-2.0
// Tests of the page: a real process: graph, table and choices.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expectError, picture, until } from '../chromium.mjs';
import { cells, choose, clickFrame, names, shows, widest } from '../page_testing.mjs';

export const tests = {
  async 'the graph shows the functions of the process'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    const found = await names(page);
    for (const want of ['pagework', 'main', 'hot_function', 'cold_function'])
      assert.ok(found.includes(want), `${want} in ${found}`);
  },
  async 'the table has self and total, hot before cold'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    const rows = await cells(page, '#functions tr');
    const at = (name) => rows.findIndex((r) => r[0] === name);
    assert.ok(at('hot_function') >= 0 && at('hot_function') < at('cold_function'));
    const share = parseFloat(rows[at('hot_function')][2]);
    assert.ok(share > 60 && share < 90, `hot_function has ${share} % itself, 75 expected`);
    await picture(page, 'process');
  },
  async 'unit, samples and the store note are said'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    assert.match(
      await page.textContent('#total'),
      /^[\d.]+ (ms|s|min) of CPU time in [\d,.]+ samples of one process, [\d.]+ % with a whole/,
    );
    assert.equal(await page.textContent('#store-note'), 'kept for this test only');
  },
  async 'the browser runs and styles only what the page came with'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    const answer = await fetch(origin);
    assert.doesNotMatch(answer.headers.get('content-security-policy'), /unsafe/);
    expectError(page, /Content Security Policy/);
    await page.evaluate(() => {
      window.violations = [];
      document.addEventListener('securitypolicyviolation', (e) =>
        violations.push(e.effectiveDirective));
      const script = document.createElement('script');
      script.textContent = 'window.hit = 1';
      document.body.append(script);
      document.body.insertAdjacentHTML(
        'beforeend', '<b style="color: red" onclick="hit = 2">b</b>',
      );
    });
    // Chromium 150 does not report a handler of an event, but does not run it either
    const violations = async () =>
      (await page.evaluate(() => window.violations)).filter((v) => v !== 'script-src-attr').sort();
    await until(async () => (await violations()).length === 2);
    assert.deepEqual(await violations(), ['script-src-elem', 'style-src-attr']);
    await page.$eval('body > b', (e) => e.click());
    assert.equal(await page.evaluate(() => window.hit), undefined);
  },
  async 'search marks frames and narrows the table'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    await page.fill('#search', 'cold_func');
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 1);
    assert.match(await page.textContent('#details'), /^found: /);
    await page.click('#reset');
    assert.ok((await page.$$('#functions tr')).length > 1);
  },
  async 'a click zooms in, reset zooms out'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    const width = async () => (await widest(page, 'cold_function')).width;
    const before = await width();
    await clickFrame(page, 'cold_function');
    await until(async () => (await width()) > 2 * before);
    await page.click('#reset');
    await until(async () => Math.abs((await width()) - before) < 2);
  },
  async 'choices come from the data and narrow it'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    await choose(page, 'app_service', 'Total');
    await shows(page, 'Total');
    assert.ok((await names(page)).includes('pagework'));
    await choose(page, 'app_service', 'all');
    await shows(page, 'hot_function');
  },
  async 'a time without data says why and where to look'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
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
  async 'the table is used with the keyboard, and says what it is sorted by'(page, origin) {
    await page.goto(origin);
    await shows(page, 'hot_function');
    assert.equal(await page.textContent('th[aria-sort] button'), 'Self');
    await page.focus('#sort-total');
    await page.keyboard.press('Enter');
    assert.equal(await page.textContent('th[aria-sort] button'), 'Total');
    await page.keyboard.press('Enter');
    assert.equal(await page.getAttribute('th[aria-sort]', 'aria-sort'), 'ascending');
    await page.focus('#table');
    await page.keyboard.press('ArrowDown');
    const [name, id] = await page.$eval('#functions tr:nth-child(2)', (e) => [
      e.cells[0].textContent,
      e.id,
    ]);
    assert.equal(await page.getAttribute('#table', 'aria-activedescendant'), id);
    await page.keyboard.press('Enter');
    assert.match(await page.inputValue('#search'), new RegExp(`^"${name}" \\w+$`));
  },
};
