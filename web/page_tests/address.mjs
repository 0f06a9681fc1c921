// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the address, and links.
import assert from 'node:assert/strict';
import { until } from '../chromium.mjs';
import {
  answersAre,
  chipOf,
  choicesAre,
  clickFrame,
  open,
  replyOf,
  replyOfTree,
  tableIs,
  widest,
  wordOf,
} from '../page_testing.mjs';

// There is one clipboard.
export const alone = [
  'an address that is shared shows the same time whenever it is opened',
];

export const tests = {
  async 'a trace from the address, its links, and languages in their own form'(page, origin) {
    const trace = '0af7651916cd43dd8448eb211c80319c';
    let asked = '';
    await answersAre(page, (body) => {
      asked = body.tag_filter;
      return replyOfTree(
        ['java', 'root', 0, ['java/util/HashMap::get', 'jvm', 30], ['json.loads', 'python', 30],
          ['fib', 'lua', 30]],
      );
    });
    await choicesAre(page, { trace_id: [trace], pod: ['x'] });
    await page.route('**/v1/info', async (r) => {
      const answer = await r.fetch();
      await r.fulfill({
        response: answer,
        json: {
          ...(await answer.json()),
          links: { trace: 'https://traces.test/t/{trace_id}?from={start_ms}', logs: '' },
        },
      });
    });
    await open(page, `${origin}/#trace_id=${trace}`);
    await page.waitForFunction(() => document.querySelectorAll('#functions tr').length === 3);
    assert.equal(asked, `trace_id='${trace}'`);
    assert.equal(await chipOf(page, 'trace_id'), trace);
    assert.match(
      await page.getAttribute('#link-trace', 'href'),
      new RegExp(`^https://traces.test/t/${trace}\\?from=\\d+$`),
    );
    assert.equal(await page.isVisible('#link-logs'), false);
    const rows = await page.$$eval('#functions tr', (all) =>
      all.map((r) => [r.cells[0].textContent, r.cells[0].style.borderLeftColor]),
    );
    assert.deepEqual(rows.map((r) => r[0]).sort(), ['fib', 'java.util.HashMap.get', 'json.loads']);
    assert.equal(new Set(rows.map((r) => r[1])).size, 3);
  },
  async 'a link has its time in UTC: it is the same in every time zone'(_, origin, newPage) {
    const tokyo = await newPage({ timezoneId: 'Asia/Tokyo' });
    const asked = [];
    const isAt = (from, to) =>
      until(
        () =>
          asked.at(-1)?.time_start === Date.parse(from) / 1000 &&
          asked.at(-1).time_end === Date.parse(to) / 1000,
      );

    tokyo.on('request', (r) => r.url().endsWith('/tree') && asked.push(r.postDataJSON()));
    await tokyo.goto(`${origin}/#range=custom&from=2026-11-21T10:00:03Z&to=2026-11-21T11:00:00Z`);
    await isAt('2026-11-21T10:00:03Z', '2026-11-21T11:00:00Z');
    assert.equal(await tokyo.inputValue('#from'), '2026-11-21T19:00:03');
    await tokyo.fill('#from', '2026-11-21T19:30:01');
    await tokyo.dispatchEvent('#from', 'change');
    await isAt('2026-11-21T10:30:01Z', '2026-11-21T11:00:00Z');
    assert.equal(wordOf(tokyo, 'from'), '2026-11-21T10:30:01Z');
    await open(tokyo, `${origin}/#`); // a time that is chosen begins with the one that is shown
    await until(() => asked.at(-1).time_end - asked.at(-1).time_start === 900);
    const { time_start } = asked.at(-1);
    await tokyo.selectOption('#choice-range', 'custom');
    await tokyo.waitForFunction(() => location.hash.includes('from='));
    assert.ok(
      Math.abs(Date.parse(wordOf(tokyo, 'from')) / 1000 - time_start) < 600,
      wordOf(tokyo, 'from'),
    );
  },
  async 'a link that is pasted into an open page is followed'(page, origin) {
    let asked;
    await choicesAre(page, { pod_ns: ['shop', 'web'], profile_event_type: ['on-cpu', 'off-cpu'] });
    await answersAre(page, (body) => ((asked = body), replyOf({ f: 1 })));
    await open(page, `${origin}/#pod_ns=web&range=never`);
    await until(async () => asked?.tag_filter === "pod_ns='web'");
    assert.equal(asked.time_end - asked.time_start, 900);
    assert.equal(await page.inputValue('#choice-range'), '900');
    await page.goto(`${origin}/#pod_ns=shop&range=3600&profile_event_type=off-cpu&pod=p1`);
    await until(() => asked.tag_filter === "pod_ns='shop' AND pod='p1'");
    assert.equal(asked.profile_event_type, 'off-cpu');
    assert.equal(asked.time_end - asked.time_start, 3600);
    for (const [choice, value] of Object.entries({
      range: '3600',
      profile_event_type: 'off-cpu',
    }))
      assert.equal(await page.inputValue(`#choice-${choice}`), value);
    assert.deepEqual([await chipOf(page, 'pod_ns'), await chipOf(page, 'pod')], ['shop', 'p1']);
    assert.ok(await page.isVisible('#choice-wait'));
    await page.selectOption('#choice-range', '300'); // of what the link says only this
    await until(
      () =>
        asked.time_end - asked.time_start === 300 &&
        asked.tag_filter === "pod_ns='shop' AND pod='p1'",
    );
  },
  async 'what is chosen is in the address, and "back" takes it back'(page, origin) {
    const asked = [];
    await choicesAre(page, { pod: ['web-1'] });
    await answersAre(page, (body) => (asked.push(body), replyOf({ big: 9000, small: 3000 })));
    await open(page, `${origin}/#`);
    await tableIs(page, 'big', 'small');
    const width = async () => (await widest(page, 'small'))?.width ?? 0;
    const full = await page.$eval('#chart', (e) => e.clientWidth);
    await page.check('#short');
    await page.click('#sort-total');
    await page.fill('#search', 'small');
    await page.fill('#search', '');
    await clickFrame(page, 'small');
    await until(async () => (await width()) > 0.99 * full);
    await page.selectOption('#choice-range', '3600');
    await until(() => asked.length === 2);
    await until(async () => Math.abs((await width()) / full - 0.25) < 0.01);
    assert.match(page.url(), /#range=3600&short=1&sort=total$/);
    await page.goBack();
    await until(() => asked.length === 3 && asked[2].time_end - asked[2].time_start === 900);
    await until(async () => (await width()) > 0.99 * full);
    assert.match(page.url(), /#zoom=small&short=1&sort=total$/);
    await page.goForward();
    await until(() => asked.length === 4);
    await page.goBack();
    await until(() => asked.length === 5);
    await page.reload(); // as from a link
    await until(async () => (await width()) > 0.99 * full);
    assert.equal(await page.isChecked('#short'), true);
    assert.equal(await page.$eval('th[aria-sort]', (e) => e.textContent), 'Total');
  },
  async 'an address that is shared shows the same time whenever it is opened'(page, origin) {
    let asked;
    await answersAre(page, (body) => ((asked = body), replyOf({ f: 1 })));
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
    await open(page, `${origin}/#range=300&search=f`);
    await tableIs(page, 'f');
    const { time_start, time_end } = asked;
    await page.click('#share');
    await page.waitForSelector('text=The address is copied.');
    const address = await page.evaluate(() => navigator.clipboard.readText());
    await open(page, address);
    await until(() => asked.time_start === time_start && asked.time_end === time_end);
    assert.equal(await page.inputValue('#search'), 'f');
    // a page that came by plain http may not copy
    await page.evaluate(() => {
      navigator.clipboard.writeText = () => Promise.reject(new Error('no'));
      document.execCommand = () => false;
    });
    await page.click('#share');
    await page.waitForSelector('#shared');
    assert.equal(await page.inputValue('#shared'), address);
    assert.equal(await page.evaluate(() => String(getSelection())), address);
  },
  async 'every tag that the hub stores can be in an address'(page, origin) {
    const { result } = await (await fetch(`${origin}/v1/profile/tags`)).json();
    const own = ['app_service', 'profile_event_type'];
    const names = result
      .filter((t) => t.stored && !t.same_as && !own.includes(t.name))
      .map((t) => (t.name.endsWith('.') ? `${t.name}x` : t.name));
    let asked = '';
    await answersAre(page, (body) => ((asked = body.tag_filter), replyOf({ f: 1 })));
    assert.ok(names.includes('pod_ns') && names.includes('k8s.label.x'));
    for (const name of names) {
      const event = result.find((t) => t.name === name)?.events?.[0] ?? 'on-cpu';
      await page.goto(`${origin}/#profile_event_type=${event}&${name}=1`);
      await until(() => asked === `${name}='1'`);
    }
  },
};
