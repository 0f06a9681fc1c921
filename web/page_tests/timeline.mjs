// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the time line.
import assert from 'node:assert/strict';
import { complaints, picture, until } from '../chromium.mjs';
import {
  answersAre, choicesAre, fits, isStale, open, replyOf, seriesOf,
} from '../page_testing.mjs';

export const tests = {
  async 'the time line: values by pod, losses and starts, another time to choose'(page, origin) {
    const start = Date.parse('2026-11-21T10:00:00Z') / 1000;
    const address = `${origin}/#range=custom&from=2026-11-21T10:00:00Z&to=2026-11-21T10:10:00Z`;
    const asked = [];
    const clock = (minute) =>
      page.evaluate((s) => new Date(s * 1000).toLocaleTimeString(), start + 60 * minute);
    const said = () => page.textContent('.timeline-said');
    const times = () => asked.slice(-1).map((b) => [b.time_start - start, b.time_end - start])[0];
    const timesAre = (from, to) => until(() => times().join() === `${from},${to}`);
    // the colour at a minute, at a part of the height
    const pixel = (minute, height) =>
      page.$eval('.timeline-chart canvas', (canvas, [x, y]) => {
        const over = document.querySelector('.u-over').getBoundingClientRect();
        const all = canvas.getBoundingClientRect();
        const at = [over.x - all.x + x * over.width, over.y - all.y + y * over.height];
        const [r, g, b] = canvas.getContext('2d').getImageData(...at, 1, 1).data;
        return `rgb(${r}, ${g}, ${b})`;
      }, [minute / 10, height]);
    const over = async () => {
      const { x, y, width, height } = await (await page.$('.u-over')).boundingBox();
      return (minute) => [x + (minute / 10) * width, y + height / 2];
    };
    await answersAre(page, () => replyOf({ f: 1 }));
    await choicesAre(page, { pod: ['web-1'] });
    await page.route('**/v1/profile/series', (r) => {
      asked.push(r.request().postDataJSON());
      const values = { 'web-1': Array(10).fill(2e6), 'web-2': [...Array(9).fill(0), 6e6] };
      return r.fulfill({
        json: seriesOf(values, {
          start, step: 60, starts: [start + 541, start + 541],
          losses: [{
            reason: 'agent_down', samples: Array(10).fill(0),
            time_ns: [0, 0, 0, 5e9, 0, 0, 0, 0, 0, 0],
          }],
        }),
      });
    });
    await open(page, `${address}&by=pod`);
    await page.waitForSelector('.u-over');
    assert.equal(asked[0].group_by, 'pod');
    const legend = await page.$$eval('.timeline-legend > *', (all) =>
      all.map((e) => [e.textContent, e.style.borderLeftColor]));
    assert.deepEqual(legend.map((l) => l[0]), ['web-1', 'web-2']);
    assert.equal(await pixel(9.5, 0.95), legend[0][1]);
    assert.equal(await pixel(9.5, 0.4), legend[1][1]);
    assert.notEqual(await pixel(4.5, 0.4), legend[1][1]);
    const at = await over();
    await page.mouse.move(...at(9.5));
    await until(async () => (await said()).includes('8.00 s (web-1 2.00 s, web-2 6.00 s)'));
    assert.ok((await said()).startsWith(`${await clock(9)} to ${await clock(10)}: `));
    assert.equal(await page.$$eval('.timeline-marks button', (all) => all.length), 2);
    await page.focus('.timeline-loss');
    assert.match(await said(), /: 5\.0 s without data: no agent ran on the node \(agent_down\)$/);
    await page.keyboard.press('ArrowRight');
    assert.match(await said(), /: 2 processes began$/);
    assert.deepEqual(await complaints(page), []);
    await picture(page, 'timeline');

    await page.mouse.move(...at(2)); // drawn over a stretch of time
    await page.mouse.down();
    await page.mouse.move(...at(3));
    await page.mouse.move(...at(4));
    await page.mouse.up();
    await until(() => asked.length === 2);
    assert.ok(Math.abs(times()[0] - 120) <= 2 && Math.abs(times()[1] - 240) <= 2, `${times()}`);
    assert.match(decodeURIComponent(page.url()), /from=2026-11-21T10:0[12]:\d\dZ.*to=.*by=pod/);
    await page.goBack();
    await timesAre(0, 600);
    await page.click('text=zoom out');
    await timesAre(-600, 1200);
    await page.click('text=previous day');
    await timesAre(-600 - 86400, 1200 - 86400);
    await open(page, address);
    await timesAre(0, 600);
    assert.equal(asked.at(-1).group_by, '');
    await page.click('.timeline-table summary');
    const rows = await page.$$eval('.timeline-table tr', (all) => all.map((r) => r.textContent));
    assert.equal(rows.length, 11);
    assert.equal(rows[10], `${await clock(9)} to ${await clock(10)}8.00 s2.00 s6.00 s`);
    await page.focus('.timeline-table tr:last-child button');
    await page.keyboard.press('Enter');
    await timesAre(540, 600);
    await page.selectOption('#by', 'pod');
    await until(() => asked.at(-1).group_by === 'pod');
    assert.equal(await isStale(page), false);
    await page.click('.timeline-legend button');
    await until(() => asked.at(-1).tag_filter === "pod='web-1'");
  },
  async 'the time line of a real process, in a narrow window'(page, origin) {
    await page.setViewportSize({ width: 390, height: 800 });
    await open(page, `${origin}/#by=app_service&range=300`);
    await page.waitForSelector('.u-over');
    await until(async () =>
      (await page.$$eval('.timeline-legend > *', (all) => all.map((e) => e.textContent))).includes(
        'pagework'));
    assert.ok(await fits(page));
    assert.ok((await page.$eval('.u-over', (e) => e.clientWidth)) > 200);
    await picture(page, 'timeline-narrow');
  },
};
