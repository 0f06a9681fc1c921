// SPDX-License-Identifier: Apache-2.0
// Tests of the page: for everybody, on every screen.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import { answersAre, clickFrame, open, replyOf, shows, table } from '../page_testing.mjs';

export const tests = {
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
  },
  async 'a browser that blocks its storage shows the page, and has the token'(page, origin) {
    expectError(page, /status of 401/);
    const tokens = [];
    await page.addInitScript(() => {
      const get = () => { throw new DOMException('blocked', 'SecurityError'); };
      for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, { get });
    });
    await page.route('**/v1/profile/tree', async (r) => {
      const token = await r.request().headerValue('authorization');
      tokens.push(token);
      if (token) await r.fulfill({ json: replyOf({ f: 1 }) });
      else await r.fulfill({ status: 401, json: { DESCRIPTION: 'sign in' } });
    });
    await open(page, `${origin}/#`);
    await page.fill('#token', 'secret');
    await page.keyboard.press('Enter');
    await shows(page, 'f');
    assert.equal(tokens.at(-1), 'Bearer secret');
  },
  async 'a narrow window has all of the page'(page, origin) {
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
    assert.ok((await page.$eval('#functions td', (e) => e.clientWidth)) >= 150);
    await picture(page, 'narrow');
  },
};
