// SPDX-License-Identifier: Apache-2.0
// Tests of the page: from when on the hub has data.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import { answersAre, open, replyOf, shows } from '../page_testing.mjs';

const rows = (page) =>
  page.$$eval('.stored tbody tr', (all) =>
    all.map((r) => [...r.children].map((e) => e.textContent)));
const said = (page) => page.textContent('.popup [role=status]');

export const tests = {
  async 'each namespace has its oldest data, and what was deleted to make room'(page, origin) {
    const of = { cluster: null, unverified: false, oldest: 1_700_000_000, deleted_until: null };
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.route('**/v1/profile/oldest', (r) =>
      r.fulfill({
        json: {
          result: [
            { ...of, namespace: 'app' },
            { ...of, namespace: 'crowd', oldest: 1_700_003_600, deleted_until: 1_700_003_599 },
          ],
          notes: ['you do not see all namespaces'],
        },
      }));
    await open(page, `${origin}/#`);
    await shows(page, 'f');
    await page.click('#stored');
    await until(async () => (await rows(page)).length === 2);
    assert.deepEqual(await rows(page), [
      ['app', '2023-11-14T22:13:20Z', 'nothing'],
      ['crowd', '2023-11-14T23:13:20Z', '2023-11-14T23:13:19Z'],
    ]);
    assert.equal(await said(page), 'you do not see all namespaces');
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'stored');
    await page.keyboard.press('Escape');
    assert.equal(await page.isVisible('.popup'), false);
  },
  async 'a real hub says when its data begins, and an error is told'(page, origin) {
    expectError(page, /status of 503/);
    await open(page, `${origin}/#`);
    await page.click('#stored');
    await until(async () => (await rows(page)).length === 1);
    const [[whose, since, deleted]] = await rows(page);
    assert.deepEqual([whose, deleted], ['no namespace', 'nothing']);
    const age = Date.now() - Date.parse(since);
    assert.ok(age > 0 && age < 3_600_000, since);
    await page.keyboard.press('Escape');
    await page.route('**/v1/profile/oldest', (r) =>
      r.fulfill({ status: 503, json: { DESCRIPTION: 'too many at once' } }));
    await page.click('#stored');
    await until(async () => (await said(page)) === 'too many at once');
  },
};
