// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the comparison of two selections.
import assert from 'node:assert/strict';
import { complaints, until } from '../chromium.mjs';
import {
  answersAre, boxes, differenceOf, hoverFrame, names, open, pixelOf, replyOf, shows,
} from '../page_testing.mjs';

// What the page asked last; the answers are a difference if it asks for one.
async function asked(page, functions) {
  const questions = [];
  await answersAre(page, (question) => {
    questions.push(question);
    if (question.before) return differenceOf(functions, { unit: 'microseconds' });
    return replyOf(Object.fromEntries(Object.entries(functions).map(([f, [, now]]) => [f, now])));
  });
  return questions;
}
const FUNCTIONS = {
  same: [4000, 4010], more: [2000, 4000], less: [4000, 2000], gone: [2000, 0], fresh: [0, 1990],
};

export const tests = {
  async 'compared with an hour before: more, less and noise have their colours'(page, origin) {
    const questions = await asked(page, FUNCTIONS);
    await open(page, `${origin}/#range=300`);
    await shows(page, 'fresh');
    assert.ok(!(await names(page)).includes('gone'));
    await page.selectOption('#compare-with', '3600');
    await shows(page, 'gone');
    const { before, time_start, time_end } = questions.at(-1);
    assert.deepEqual([time_start - before.time_start, time_end - before.time_end], [3600, 3600]);
    assert.equal(time_end - time_start, 300);
    const colours = Object.fromEntries((await boxes(page)).map((b) => [b.name, b.colour]));
    const [blue, grey, orange] = ['#5196ec', '#cccccc', '#f58747'];
    assert.deepEqual([colours.gone, colours.same, colours.fresh], [blue, grey, orange]);
    const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
    assert.ok(part(colours.more, 1) > part(colours.more, 5), colours.more);
    assert.ok(part(colours.less, 1) < part(colours.less, 5), colours.less);
    assert.equal(await pixelOf(page, 'same'), 'rgb(204, 204, 204)');
    assert.equal(await page.textContent('#total'), '12.0 ms before, 12.0 ms now: as much');
    assert.deepEqual(await page.$$eval('#legend > span', (all) => all.map((e) => e.textContent)), [
      'less, or gone', 'a little less', 'not distinguishable from noise', 'a little more',
      'more, or new',
    ]);
    await hoverFrame(page, 'more');
    assert.match(
      await page.textContent('#details'),
      /^more .*; now 33\.3 %, before 16\.7 %: \+16\.7 points ± [\d.]+ points$/,
    );
    if (process.env.SCREENSHOT)
      await page.screenshot({ path: `${process.env.SCREENSHOT}.compare.png` });
    assert.deepEqual(await complaints(page), []);
    await page.selectOption('#compare-with', '');
    await until(async () => !(await names(page)).includes('gone'));
    assert.doesNotMatch(page.url(), /before|difference/);
    await page.goBack();
    await shows(page, 'gone');
  },
};
