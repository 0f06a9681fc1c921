// SPDX-License-Identifier: Apache-2.0
// Tests of the page: favourites, which the browser keeps.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import { answersAre, filterIs, open, replyOf } from '../page_testing.mjs';

const kept = (page) => page.$$eval('.favourite', (all) => all.map((e) => e.textContent));

export const tests = {
  async 'favourites are kept, found again, replaced and removed'(page, origin) {
    const asked = await answersAre(page, () => replyOf({ f: 1 }));
    const keep = async (name) => {
      await page.fill('[name=favourite]', name);
      await page.keyboard.press('Enter');
      await until(async () => (await kept(page)).includes(name));
    };
    await open(page, `${origin}/#pod_ns=shop&range=3600&profile_event_type=off-cpu`);
    await page.click('#favourites');
    await keep('the shop');
    await page.keyboard.press('Escape');
    await open(page, `${origin}/#`);
    await filterIs(asked, '');
    await page.click('#favourites');
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'favourites');
    await page.click('.favourite');
    await filterIs(asked, "pod_ns='shop'");
    assert.equal(asked.at(-1).time_end - asked.at(-1).time_start, 3600);
    assert.equal(asked.at(-1).profile_event_type, 'off-cpu');
    await page.goBack();
    await filterIs(asked, '');
    await page.click('#favourites');
    await page.fill('[name=favourite]', 'the shop');
    assert.equal(await page.textContent('.popup form button'), 'replace');
    await page.keyboard.press('Enter');
    await keep('another');
    await page.click('[aria-label="remove the favourite another"]');
    await until(async () => (await kept(page)).length === 1);
    assert.equal(
      await page.getAttribute(':focus', 'aria-label'), 'remove the favourite the shop');
    await page.keyboard.press('Enter');
    await until(async () => (await kept(page)).length === 0);
    assert.equal(await page.getAttribute(':focus', 'name'), 'favourite');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Enter'); // the focus is on what opens it, also right after that
    await page.waitForSelector('.popup');
    await page.keyboard.press('Escape');
    await page.waitForSelector('.popup', { state: 'detached' });
  },
  async 'favourites that cannot be read are told and not lost'(page, origin) {
    await open(page, `${origin}/#`);
    await page.evaluate(() => localStorage.setItem('podflame-favourites', '[{"name": "a", '));
    await open(page, `${origin}/#`);
    await page.click('#favourites');
    await page.waitForSelector('.popup [role=alert]');
    assert.match(await page.textContent('.popup [role=alert]'), /cannot read all of its favour/);
    await page.fill('[name=favourite]', 'new');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.popup [role=alert]', { state: 'detached' });
    assert.equal(await page.evaluate(() => localStorage.getItem('podflame-favourites-damaged')),
      '[{"name": "a", ');
  },
};
