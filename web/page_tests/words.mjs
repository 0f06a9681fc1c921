// SPDX-License-Identifier: Apache-2.0
// Tests of the page: sentences that explain, keys, dark and light.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import { answersAre, hash, open, replyOfTree, shows } from '../page_testing.mjs';

const focusIsOn = (page, id) =>
  until(() => page.evaluate((i) => document.activeElement.id === i, id));
const themeOf = (page) => page.evaluate(() => document.documentElement.dataset.theme);

export const tests = {
  async 'a word is explained by pointer, keyboard and touch, and Escape ends it'(
    page, origin, newPage,
  ) {
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    const word = page.locator('#total .explained-word').nth(1); // "N samples"
    const tooltip = page.locator('[role=tooltip]');
    await word.hover();
    assert.match(await tooltip.textContent(), /How often podflame looked/);
    await tooltip.hover(); // it can be read to its end
    assert.ok(await tooltip.isVisible());
    await page.mouse.move(0, 0);
    await until(async () => (await tooltip.count()) === 0);
    await word.focus();
    const id = await word.getAttribute('aria-describedby');
    assert.equal(await tooltip.getAttribute('id'), id);
    const { x, width } = await tooltip.boundingBox();
    assert.ok(x >= 0 && x + width <= 1200);
    assert.deepEqual(await complaints(page), []);
    await page.focus('#per');
    const told = await page.getAttribute('#per', 'aria-describedby');
    await until(async () => (await tooltip.getAttribute('id')) === told);
    await page.keyboard.press('Escape');
    await until(async () => (await tooltip.count()) === 0);
    const phone = await newPage({ viewport: { width: 390, height: 800 }, hasTouch: true });
    await open(phone, `${origin}/#app_service=pagework`);
    await shows(phone, 'hot_function');
    await phone.locator('#total .explained-word').last().tap();
    const box = await phone.locator('[role=tooltip]').boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 390, JSON.stringify(box));
    await picture(phone, 'phone');
  },
  async 'a marker and a wait are explained beside their frame'(page, origin) {
    await answersAre(page, () => replyOfTree(['p', 'root', 0,
      ['[unwind: read]', 'marker', 60], ['[wait: runqueue]', 'wait', 40]]));
    await open(page, `${origin}/#`);
    await shows(page, '[unwind: read]');
    await page.focus('#chart .flame-frames');
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowDown');
    assert.match(await page.textContent('#details'), /could not read the memory of the stack/);
    await page.keyboard.press('ArrowRight');
    assert.match(await page.textContent('#details'), /had no CPU/);
  },
  async 'the keys do what their list says'(page, origin) {
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    await page.keyboard.press('?');
    await until(() => page.$eval('#keys', (d) => d.open));
    assert.match(await page.textContent('#keys'), /goes to the search for functions/);
    assert.match(await page.textContent('#keys'), /zooms to the selected frame/);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'keys');
    await page.keyboard.press('d'); // in a dialog, keys are the dialog's
    assert.equal(await themeOf(page), 'system');
    await page.keyboard.press('Escape');
    await until(() => page.$eval('#keys', (d) => !d.open));
    await page.keyboard.press('/');
    await focusIsOn(page, 'search');
    assert.equal(await page.inputValue('#search'), '');
    await page.keyboard.type('d?');
    assert.equal(await page.inputValue('#search'), 'd?'); // typed, and nothing else
    await page.fill('#search', '');
    await page.focus('#reload');
    await page.keyboard.press('o');
    await until(async () => /from=/.test(await hash(page)));
    const times = async () => [...(await hash(page)).matchAll(/(?:from|to)=([^&]*)/g)]
      .map((m) => Date.parse(m[1]) / 1000);
    const [from, to] = await times();
    assert.ok(Math.abs(to - from - 2700) <= 2, `${to - from} s, not three quarters of an hour`);
    await page.keyboard.press('p');
    await until(async () => (await times())[1] === from);
    await page.keyboard.press('Control+d');
    assert.equal(await themeOf(page), 'system');
  },
  async 'single keys can be switched off, and the browser remembers it'(page, origin) {
    await open(page, `${origin}/#app_service=pagework`);
    await page.click('#show-keys');
    await page.click('#keys label:has-text("single keys act")');
    await page.keyboard.press('Escape');
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    await page.keyboard.press('/');
    await page.keyboard.press('d');
    assert.equal(await themeOf(page), 'system');
    await page.keyboard.press('?'); // this one acts
    await until(() => page.$eval('#keys', (d) => d.open));
  },
  async 'dark and light: by the system, or as chosen, which the browser remembers'(page, origin) {
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    // whether the canvas has the surface of each theme, of which a letter has a pixel by chance
    const canvas = () => page.$eval('#chart canvas', (c) => {
      const all = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const part = (grey) => {
        let n = 0;
        for (let i = 0; i < all.length; i += 4)
          if (all[i] === grey && all[i + 1] === grey && all[i + 2] === grey) n++;
        return n / (all.length / 4);
      };
      return [part(28) > 0.001, part(255) > 0.001];
    });
    await page.emulateMedia({ colorScheme: 'light' });
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    assert.equal(await background(), 'rgb(250, 250, 250)');
    assert.deepEqual(await canvas(), [false, true]);
    assert.deepEqual(await complaints(page), []);
    await page.emulateMedia({ colorScheme: 'dark' });
    await until(async () => (await background()) === 'rgb(22, 22, 22)');
    await until(async () => (await canvas()).join() === 'true,false');
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'dark');
    await page.selectOption('#theme', 'light');
    assert.equal(await background(), 'rgb(250, 250, 250)');
    await open(page, `${origin}/#app_service=pagework`);
    assert.equal(await background(), 'rgb(250, 250, 250)');
  },
};
