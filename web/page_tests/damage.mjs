// SPDX-License-Identifier: Apache-2.0
// Tests of the page: an answer of the hub that is damaged, although it is JSON, leaves the rest of
// the page as it is.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import {
  answersAre, choicesAre, open, replyOf, seriesOf, shows, tableIs,
} from '../page_testing.mjs';

const failed = (page) => page.$$eval('.failed p', (all) => all.map((e) => e.textContent));
const failedAre = (page, ...patterns) =>
  until(async () => {
    const all = await failed(page);
    return all.length === patterns.length && patterns.every((p, i) => p.test(all[i]));
  });
// A profile whose second node has a function that it does not list.
const damaged = () => {
  const reply = replyOf({ f: 1000 });
  reply.result.nodes.function[1] = 99;
  return reply;
};

export const tests = {
  async 'a damaged profile is said in the place of its view, and the rest lives'(page, origin) {
    expectError(page, /TypeError/);
    let reply = damaged();
    await answersAre(page, () => reply);
    await choicesAre(page, { pod: ['web-1'] });
    await page.route('**/v1/profile/groups', (r) =>
      r.fulfill({ json: { unit: 'microseconds', summary: {}, result: {
        groups: [{ value: 'web-1', total: 5 }], total: 5, others: { groups: 0, total: 0 },
      } } }));
    await open(page, `${origin}/#`);
    await failedAre(page, /^The page cannot show the view “Flame graph”: ./);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'damage');
    await page.click('#choice-pod');
    await page.click('.popup .combobox-text:text-is("web-1")');
    await until(() => page.url().endsWith('#pod=web-1'));
    reply = replyOf({ healed: 1000 });
    await page.click('#reload');
    await shows(page, 'healed');
    await failedAre(page);
  },
  async 'a time line that cannot be shown leaves the profile'(page, origin) {
    expectError(page, /TypeError/);
    let series = { result: { ...seriesOf({ all: [1] }).result, losses: null } };
    await answersAre(page, () => replyOf({ f: 1000 }));
    await page.route('**/v1/profile/series', (r) => r.fulfill({ json: series }));
    await open(page, `${origin}/#`);
    await tableIs(page, 'f');
    await failedAre(page, /^The page cannot show the time line: ./);
    series = seriesOf({ all: [1] });
    await page.click('#reload');
    await page.waitForSelector('#timeline .u-over');
    await failedAre(page);
  },
  async 'a view that fails leaves its tools and the other views'(page, origin) {
    expectError(page, /TypeError/);
    await answersAre(page, () => replyOf({ f: 1000 }));
    let groups = {};
    await page.route('**/v1/profile/groups', (r) =>
      r.fulfill({ json: { unit: 'microseconds', summary: {}, result: groups } }));
    await open(page, `${origin}/#view=breakdown`);
    await failedAre(page, /^The page cannot show the view “Breakdown”: ./);
    assert.equal(await page.isVisible('#total'), true);
    await page.click('#view-table');
    await tableIs(page, 'f');
    await failedAre(page);
    await page.click('#view-breakdown');
    await failedAre(page, /Breakdown/);
    groups = { groups: [{ value: 'a', total: 1 }], total: 1, others: { groups: 0, total: 0 } };
    await page.click('#reload');
    await page.waitForSelector('#groups');
    await failedAre(page);
  },
};
