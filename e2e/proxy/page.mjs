#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// The page of a hub behind oauth2-proxy, in a real Chromium: there is no field for a token, and a
// session that is over is begun again without a click. Run by e2e/tests/long/31-oauth2-proxy.sh,
// which sets
//   PAGE       the address of the proxy
//   FROM, TO   when the samples were, in Unix seconds
import assert from 'node:assert/strict';
import { expectError, launch, run, until, within } from '../../web/chromium.mjs';

const { PAGE, FROM, TO } = process.env;
const iso = (seconds) => new Date(1000 * Number(seconds)).toISOString().slice(0, 19) + 'Z';
const START = `${PAGE}/#from=${iso(FROM)}&to=${iso(TO)}`;

// The namespaces that can be chosen; the list has "all", too.
const namespaces = async (page) => {
  await page.click('#choice-pod_ns');
  await page.waitForSelector('.popup .combobox-text:text-is("shop")');
  const all = await page.$$eval('.popup .combobox-text', (e) => e.map((o) => o.textContent));
  await page.keyboard.press('Escape');
  return all.slice(1);
};
const hasGraph = (page) =>
  until(async () => (await page.$$eval('#chart', ([e]) => e?.flame.boxes() ?? [])).length > 0);

const tests = {
  async 'the page behind oauth2-proxy'(newPage) {
    // the provider's certificate is of the tests' own CA
    const page = await newPage({ ignoreHTTPSErrors: true });

    await page.goto(START);
    await hasGraph(page);
    assert.equal(await page.isVisible('#sign-in'), false);
    assert.deepEqual(await namespaces(page), ['shop']);
    assert.match(page.url(), /#from=/);

    await page.context().clearCookies(); // the session is over
    expectError(page, /status of 401/);
    const loaded = page.waitForEvent('load');
    await page.click('#reload');
    await loaded;
    await hasGraph(page);
    assert.equal(await page.isVisible('#sign-in'), false);
    assert.match(page.url(), /#from=/);
  },
};

let count = { passed: 0, failed: 0 };
let browser;
try {
  browser = await launch();
  count = await run(browser, tests);
} catch (e) {
  console.log(`not ok ${e.stack}`);
  count.failed++;
} finally {
  await within(60, 'the end of the browser', browser?.close() ?? null).catch(() => {});
}
process.exit(count.passed && !count.failed ? 0 : 1);
