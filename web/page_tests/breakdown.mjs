// SPDX-License-Identifier: Apache-2.0
// Tests of the page: which values of a tag have the profile, or a function of it.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import {
  answersAre, cells, choicesAre, differenceOf, open, replyOf, replyOfTree, shows, widest, wordOf,
} from '../page_testing.mjs';

const rows = (page) => cells(page, '#groups tbody tr');
// What is asked; `groups` of { time_start, ... } gives [value, total, function_total] each.
async function groupsAre(page, groups, others = { groups: 0, total: 0, samples: 0 }) {
  const questions = [];
  await page.route('**/v1/profile/groups', (r) => {
    const question = r.request().postDataJSON();
    // a sample is 10 ms
    const all = groups(question).map(([value, total, of]) => ({
      value, total, samples: total / 10_000,
      ...(question.function && { function_total: of, function_samples: of / 10_000 }),
    }));
    const sum = (key) => all.reduce((a, g) => a + g[key], others[key] ?? 0);
    questions.push(question);
    return r.fulfill({ json: {
      OPT_STATUS: 'SUCCESS', DESCRIPTION: '', unit: 'microseconds',
      summary: { samples: 9, losses: [{ reason: 'no_pid', samples: 7 }] },
      result: {
        groups: all, others, total: sum('total'), samples: sum('samples'),
        ...(question.function && {
          function_total: sum('function_total'), function_samples: sum('function_samples'),
        }),
      },
    } });
  });
  return questions;
}

export const tests = {
  async 'pods with their values and shares; a click narrows the filter'(page, origin) {
    await answersAre(page, () => replyOf({ f: 1000 }));
    const questions = await groupsAre(
      page,
      () => [['web-1', 6_000_000], ["<b>\u202eit's-2", 3_000_000], ['', 500_000]],
      { groups: 3, total: 500_000 },
    );
    await choicesAre(page, { 'k8s.label.': ['version'] });
    await open(page, `${origin}/#view=breakdown`);
    await until(async () => (await rows(page)).length === 4);
    assert.deepEqual(await rows(page), [
      ['web-1', '6.00 s', '60.0 %', 'compare'],
      ["<b>\ufffdit's-2", '3.00 s', '30.0 %', 'compare'],
      ['without this tag', '500 ms', '5.0 %', ''],
      ['3 others', '500 ms', '5.0 %', ''],
    ]);
    assert.match(await page.textContent('#breakdown #losses'), /^7 samples lost: /);
    assert.equal(questions[0].group_by, 'pod');
    assert.equal(questions[0].function, undefined);
    const widths = await page.$$eval('.group-bar', (all) => all.map((e) => e.clientWidth));
    assert.ok(Math.abs(widths[1] / widths[0] - 0.5) < 0.01, widths.join());
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'breakdown');
    await page.selectOption('#breakdown-by', 'image');
    await until(() => questions.at(-1).group_by === 'image');
    await page.selectOption('#breakdown-by', 'k8s.label.version');
    await until(() => questions.at(-1).group_by === 'k8s.label.version');
    await page.selectOption('#breakdown-by', 'pod');
    await page.click('.group-value >> nth=1');
    await until(() => wordOf(page, 'pod') === "<b>\u202eit's-2");
    await until(() => questions.at(-1).tag_filter === "pod='<b>\u202eit\\'s-2'");
    await page.goBack();
    await until(() => questions.at(-1).tag_filter === '');
  },
  async 'of a function: its share of all and of each pod'(page, origin) {
    await answersAre(page, () => replyOf({ f: 1000 }));
    const questions = await groupsAre(page, () => [['a', 50, 9], ['b', 900, 1]]);
    await open(
      page,
      `${origin}/#view=breakdown&function=java.lang.String.hash&function_kind=jvm`,
    );
    await until(async () => (await rows(page)).length === 2);
    assert.deepEqual(questions.at(-1).function, { name: 'java/lang/String::hash', kind: 'jvm' });
    assert.deepEqual((await rows(page)).map((r) => r.slice(0, 4)), [
      ['a', '9.00 µs', '90.0 %', '18.0 %'], ['b', '1.00 µs', '10.0 %', '0.1 %'],
    ]);
    assert.match(
      await page.textContent('#breakdown [role=status]'),
      /^10\.0 µs of java\.lang\.String\.hash, of 950 µs in all/,
    );
    await page.click('#breakdown-all');
    await until(() => questions.at(-1).function === undefined);
  },
  async 'one pod compared with all others'(page, origin) {
    const profiles = [];
    await answersAre(page, (question) => {
      profiles.push(question);
      if (!question.before) return replyOf({ f: 1000 });
      return differenceOf({ f: [900, 100] }, { unit: 'microseconds' });
    });
    await groupsAre(page, ({ tag_filter: f }) =>
      f.includes('!=')
        ? [['slow', 1_000_000], ['b', 8_900_000], ['c', 100_000]]
        : [['slow', 5_900_000], ['b', 4_000_000], ['c', 110_000]]);
    await open(page, `${origin}/#view=breakdown`);
    await until(async () => (await rows(page)).length === 3);
    await page.click('.group-action button');
    await shows(page, 'f');
    await until(() => profiles.at(-1).before);
    assert.equal(profiles.at(-1).tag_filter, "pod='slow'");
    assert.equal(profiles.at(-1).before.tag_filter, "pod!='slow'");
    assert.equal(wordOf(page, 'colours'), 'difference');
    await page.click('#view-breakdown');
    await until(async () => (await rows(page))[0]?.[3] === '10.0 %');
    assert.deepEqual((await rows(page)).map((r) => r.slice(0, 5)), [
      ['slow', '5.90 s', '58.9 %', '10.0 %', '+48.9 points'],
      ['b', '4.00 s', '40.0 %', '89.0 %', '−49.0 points'],
      ['c', '110 ms', '1.1 %', '1.0 %', '+0.10 points, noise'],
    ]);
    assert.match(await page.getAttribute('#groups tr:nth-child(3) td:nth-child(5)', 'title'),
      /^now 1\.10 %, before 1\.00 %: \+0\.10 points ± .* not distinguishable from noise$/);
  },
  async 'from a thread that was ready but had no CPU to who had the CPUs'(page, origin) {
    await answersAre(page, () =>
      replyOfTree(['search', 'root', 0, ['serve', 'app', 0, ['[wait: runqueue]', 'wait', 900]]]));
    await choicesAre(page, { pod_node: ['n1', 'n2'], profile_event_type: ['on-cpu', 'off-cpu'] });
    const questions = await groupsAre(page, () => [['noisy', 900], ['search', 100]]);
    await open(page, `${origin}/#profile_event_type=off-cpu&pod_ns=shop&app_service=search`);
    await shows(page, '[wait: runqueue]');
    await page.waitForSelector('#choice-profile_event_type option:text-is("on-cpu")', {
      state: 'attached', // the choices are answered, so the nodes are known
    });
    const { x, y, width, height } = await widest(page, '[wait: runqueue]');
    const position = { x: x + width / 2, y: y + height / 2 };
    await page.click('#chart canvas', { position, button: 'right' });
    await page.click('[role=menuitem]:text-is("Who had the CPUs")');
    await until(async () => (await rows(page)).length === 2);
    const { profile_event_type: event, app_service: process, ...question } = questions.at(-1);
    assert.deepEqual([event, process, question.group_by], ['on-cpu', '', 'pod']);
    assert.equal(question.tag_filter, "pod_node IN ('n1', 'n2')");
    await page.goBack();
    await shows(page, '[wait: runqueue]');
    assert.equal(wordOf(page, 'app_service'), 'search');
  },
};
