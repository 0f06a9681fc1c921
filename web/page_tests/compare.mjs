// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the comparison of two selections.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import {
  answersAre, boxes, cells, differenceOf, hoverFrame, legend, names, open, pixelOf, replyOf, shows,
} from '../page_testing.mjs';

// What the page asked last; the answers are a difference if it asks for one.
const asked = (page, functions) =>
  answersAre(page, (question) => {
    if (question.before) return differenceOf(functions, { unit: 'microseconds' });
    return replyOf(Object.fromEntries(Object.entries(functions).map(([f, [, now]]) => [f, now])));
  });
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
    assert.deepEqual(await legend(page), [
      'less, or gone', 'a little less', 'not distinguishable from noise', 'a little more',
      'more, or new',
    ]);
    await hoverFrame(page, 'more');
    assert.match(
      await page.textContent('#details'),
      /^more .*; now 33\.3 %, before 16\.7 %: \+16\.7 points ± [\d.]+ points$/,
    );
    await picture(page, 'compare');
    assert.deepEqual(await complaints(page), []);
    await page.selectOption('#compare-with', '');
    await until(async () => !(await names(page)).includes('gone'));
    assert.doesNotMatch(page.url(), /before|difference/);
    await page.goBack();
    await shows(page, 'gone');
  },
  async 'only what grew: as wide as how much more it is'(page, origin) {
    await asked(page, FUNCTIONS);
    await open(page, `${origin}/#before_range=300&grown=1`);
    await shows(page, 'fresh');
    assert.deepEqual((await names(page)).sort(), ['fresh', 'main', 'more', 'same', 'web']);
    // 10 of "same", 2000 of "more", 1990 of "fresh"
    const { width } = (await boxes(page)).find((b) => b.name === 'web');
    const more = (await boxes(page)).find((b) => b.name === 'more');
    assert.ok(Math.abs(more.width / width - 0.5) < 0.01, `${more.width} of ${width}`);
    assert.equal(
      await page.textContent('#total'),
      '4.00 ms grown, 4.00 ms shrunk, both selections taken to be equally large',
    );
    await page.uncheck('#grown');
    await shows(page, 'gone');
  },
  async 'the table says which differences are noise, and sorts by them'(page, origin) {
    await asked(page, FUNCTIONS);
    await open(page, `${origin}/#before_range=300&colours=difference`);
    await page.click('#sort-difference');
    const rows = async () =>
      (await cells(page, '#functions tr')).map((row) => [row[0], row[5]]);
    await until(async () => (await rows())[0]?.[0] === 'more');
    assert.deepEqual(await rows(), [
      ['more', '+16.7 points'], ['fresh', '+16.6 points'], ['same', '+0.08 points, noise'],
      ['main', '0.00 points, noise'], ['less', '−16.7 points'], ['gone', '−16.7 points'],
    ]);
  },
  async 'another selection: time, process and filter, which can be swapped'(page, origin) {
    const questions = await asked(page, FUNCTIONS);
    await open(page, `${origin}/#from=2026-11-21T10:00:00Z&to=2026-11-21T10:05:00Z&pod=a`);
    await shows(page, 'fresh');
    await page.selectOption('#compare-with', 'another selection');
    await page.fill('[name=before_filter]', "pod='b' OR pod='c'");
    await page.press('[name=before_filter]', 'Enter');
    await until(() => questions.at(-1).before?.tag_filter === "pod='b' OR pod='c'");
    assert.equal(questions.at(-1).tag_filter, "pod='a'");
    assert.equal(questions.at(-1).before.time_start, questions.at(-1).time_start);
    await page.reload();
    await shows(page, 'gone');
    assert.equal(await page.inputValue('[name=before_filter]'), "pod='b' OR pod='c'");
    await page.fill('[name=before_filter]', "pod='b'");
    await page.press('[name=before_filter]', 'Enter');
    await page.click('#before-choice-pod');
    await page.selectOption('#condition-operator', '!=');
    await until(() => questions.at(-1).before?.tag_filter === "pod!='b'");
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'before');
    await page.click('.condition-done');
    await page.fill('[name=before_filter]', "pod='b' OR pod='c'");
    await page.press('[name=before_filter]', 'Enter');
    await until(() => questions.at(-1).before?.tag_filter === "pod='b' OR pod='c'");
    await page.click('#swap');
    await until(() => questions.at(-1).tag_filter === "pod='b' OR pod='c'");
    assert.equal(questions.at(-1).before.tag_filter, "pod='a'");
  },
  async 'what is typed as a filter stays when an answer arrives'(page, origin) {
    const questions = await asked(page, FUNCTIONS);
    await open(page, `${origin}/#range=300&before_range=600`);
    await shows(page, 'gone');
    await page.focus('[name=before_filter]');
    await page.keyboard.type("pod='a'");
    const before = questions.length;
    await page.evaluate(() => document.querySelector('#reload').click());
    await until(async () =>
      questions.length > before && (await page.getAttribute('main', 'class')) === '');
    assert.equal(await page.inputValue('[name=before_filter]'), "pod='a'");
    await page.keyboard.press('Enter');
    await until(() => questions.at(-1).before.tag_filter === "pod='a'");
    assert.equal(await page.inputValue('[name=before_filter]'), "pod='a'");
  },
};
