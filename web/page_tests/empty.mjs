// SPDX-License-Identifier: Apache-2.0
// Tests of the page: why an answer is empty, and what to choose instead.
import assert from 'node:assert/strict';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import { answersAre, hash, open, shows } from '../page_testing.mjs';

const EMPTY = {
  OPT_STATUS: 'SUCCESS', DESCRIPTION: '', result: null, unit: 'microseconds',
  summary: { samples: 0, profiles: 0 },
};
const reasonsAre = (page, reasons) =>
  page.route('**/v1/profile/why', (r) => r.fulfill({ json: { result: reasons } }));
const reasonTexts = (page) =>
  page.$$eval('#empty li > p:first-child', (all) => all.map((p) => p.textContent));
const emptyWith = async (page, reasons) => {
  await answersAre(page, () => EMPTY);
  await reasonsAre(page, reasons);
};

const HOSTILE = '<img src=x onerror="window.hacked = 1">\u202egpj';
const REASONS = [
  {
    reason: 'condition', command: null, tag: 'pod', samples: 12, values: ['web-1', HOSTILE],
    text: 'Nothing matches the condition on pod together with the others.',
  },
  {
    reason: 'event_not_asked', text: `ProfilingTarget app/web does not ask for on-cpu. ${HOSTILE}`,
    command: `kubectl -n app patch ptgt web --type merge -p '{"spec": {"events": {"onCpu": {}}}}'`,
  },
  { reason: 'other_event', text: 'Other events have data.', command: null, events: ['off-cpu'] },
  {
    reason: 'other_time', text: 'The last data before this time is from about then.',
    command: null, time_start: 1700000000, time_end: 1700000900,
  },
  {
    reason: 'lost', text: 'Data of this time was lost.', command: null,
    losses: [{ reason: 'agent_down', samples: 0, time_ns: 6e10 }],
  },
];

export const tests = {
  async 'a user who may not see all namespaces is told what is left out'(page, origin) {
    const note = 'of the namespaces that have profiles you may see none; that needs the verb get';
    const losses = [{ reason: 'ring_full', samples: 0, time_ns: 0, of_node: true, hidden: true }];

    await emptyWith(page, []);
    await answersAre(page, () =>
      ({ ...EMPTY, summary: { ...EMPTY.summary, notes: [note], losses } }));
    await open(page, origin);
    await until(async () => (await page.textContent('main')).includes(note));
    assert.match(await page.textContent('#losses'), /^something lost by some process/);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'tenant');
  },
  async 'an empty answer says why in the order of the hub, and names cannot break out'(
    page, origin,
  ) {
    await emptyWith(page, REASONS);
    await open(page, `${origin}/#pod=wbe-1`);
    await until(async () => (await reasonTexts(page)).length === 5);
    const texts = await reasonTexts(page);
    assert.match(texts[0], /condition on pod/);
    assert.match(texts[1], /<img src=x onerror/);
    assert.ok(!texts[1].includes('\u202e'));
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.textContent('#empty code'), REASONS[1].command);
    assert.match(await page.textContent('#empty li:last-child'), /60\.0 s without data: no agent/);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'empty');
  },
  async 'a condition is taken out or gets a value, a time and an event are chosen'(page, origin) {
    await emptyWith(page, REASONS);
    const press = async (text) => {
      await open(page, `${origin}/#pod=wbe-1&pod_ns=app`);
      await page.click(`#empty button:has-text("${text}")`);
    };
    await press('remove the condition on pod');
    assert.equal(await hash(page), '#pod_ns=app');
    await press('pod = web-1');
    assert.match(await hash(page), /pod=web-1/);
    await press('show off-cpu');
    assert.match(await hash(page), /profile_event_type=off-cpu/);
    await press('show 11/1');
    assert.match(await hash(page), /from=2023-11-14T22:13:20Z&to=2023-11-14T22:28:20Z/);
    await page.goBack();
    await until(async () => !(await hash(page)).includes('from='));
  },
  async 'a hub that cannot say why does no harm'(page, origin) {
    expectError(page, /status of 404/);
    await answersAre(page, () => EMPTY);
    await page.route('**/v1/profile/why', (r) =>
      r.fulfill({ status: 404, json: { DESCRIPTION: 'there is nothing at this path' } }));
    await open(page, `${origin}/#pod=x`);
    await until(async () => /does not say why: there is nothing/.test(
      await page.textContent('#empty')));
    assert.equal(await page.$('#error'), null);
  },
  async 'the real hub names the condition that matches nothing, and a click mends it'(
    page, origin,
  ) {
    await open(page, `${origin}/#app_service=pagewrok`);
    await page.click('#empty button:has-text("app_service = pagework")');
    await shows(page, 'hot_function');
  },
};
