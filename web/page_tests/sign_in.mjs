// SPDX-License-Identifier: Apache-2.0
// Tests of the page: signing in.
import assert from 'node:assert/strict';
import { expectError, until } from '../chromium.mjs';
import { answersAre, isStale, open, replyOf, table, tableIs } from '../page_testing.mjs';

const INFO = {
  version: 'x',
  cluster_name: 'c',
  auth_required: true,
  store_note: '',
  tags: [],
};

export const tests = {
  async 'a refused token asks to sign in and shows the command'(page, origin) {
    expectError(page, /status of 401/);
    await page.route('**/v1/profile/*', (r) =>
      r.fulfill({ status: 401, body: '{"OPT_STATUS":"UNAUTHORIZED","DESCRIPTION":"no token"}' }),
    );
    await page.route('**/v1/info', (r) =>
      r.fulfill({
        status: 200,
        json: { ...INFO, token_hint: 'kubectl create token t' },
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
  async 'a token that expires: what is shown and typed stays, and the next token goes on'(
    page,
    origin,
  ) {
    expectError(page, /status of 401/);
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
  },
  async 'what the hub says about itself is asked for once, with a token, too'(page, origin) {
    const asked = [];
    page.on('request', (r) => {
      if (r.url().endsWith('/v1/info')) asked.push(r.headers().authorization);
    });
    await page.addInitScript(() => {
      if (location.protocol === 'http:') sessionStorage.setItem('podflame-token', 'abc');
    });
    await answersAre(page, () => replyOf({ f: 1 }));
    await open(page, `${origin}/#`);
    await tableIs(page, 'f');
    assert.deepEqual(asked, [undefined]);
  },
  async 'behind a proxy that signs the user in there is no field for a token'(page, origin) {
    const asked = [];
    let isOver = false;
    // as oauth2-proxy: it adds the token, and says 401 without a word when its session is over
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.route('**/v1/info', (r) => r.fulfill({ json: { ...INFO, token_hint: 't' } }));
    await page.route('**/v1/profile/*', (r) => {
      asked.push([r.request().headers().authorization, r.request().headers().accept]);
      return isOver ? r.fulfill({ status: 401, json: {} }) : r.fallback();
    });
    await open(page, `${origin}/#search=f`);
    await tableIs(page, 'f');
    assert.equal(await page.isVisible('#sign-in'), false);
    for (const a of asked) assert.deepEqual(a, [undefined, 'application/json']);

    expectError(page, /status of 401/);
    isOver = true;
    const loaded = page.waitForEvent('load');
    await page.click('#reload');
    await loaded; // a proxy would let the user sign in now
    await page.waitForSelector('#sign-in[open]'); // this one does not, and no page loads for ever
    assert.equal(await page.inputValue('#search'), 'f');
    isOver = false;
    await page.reload();
    await tableIs(page, 'f');
    assert.equal(await page.isVisible('#sign-in'), false);
  },
  async 'behind a proxy whose token has expired the page is loaded again'(page, origin) {
    let isExpired = false;
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.route('**/v1/info', (r) => r.fulfill({ json: { ...INFO, token_hint: 't' } }));
    await page.route('**/v1/profile/*', (r) =>
      isExpired ? r.fulfill({ status: 401, json: { DESCRIPTION: 'expired' } }) : r.fallback());
    page.on('request', (r) => {
      if (r.isNavigationRequest()) isExpired = false; // the proxy has a new token
    });
    await open(page, `${origin}/#search=f`);
    await tableIs(page, 'f');
    expectError(page, /status of 401/);
    isExpired = true;
    const loaded = page.waitForEvent('load');
    await page.selectOption('#choice-range', '3600'); // several questions at once
    await loaded;
    await tableIs(page, 'f');
    assert.equal(await page.isVisible('#sign-in'), false);

    isExpired = true; // again within a minute: no page loads for ever
    await page.click('#reload');
    await page.waitForSelector('#sign-in[open]');
  },
  async 'what cannot be a token is asked for again'(page, origin) {
    await page.route('**/v1/info', (r) =>
      r.fulfill({ json: { ...INFO, token_hint: 't' } }),
    );
    await answersAre(page, () => replyOf({ f: 1 }));
    expectError(page, /status of 401/);
    await page.route('**/v1/profile/tags', (r) =>
      r.fulfill({ status: 401, json: { DESCRIPTION: 'a bearer token is needed' } }));
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
  },
};
