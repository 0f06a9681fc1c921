// SPDX-License-Identifier: Apache-2.0
// Tests of the page: the leak view.
import assert from 'node:assert/strict';
import { picture, until } from '../chromium.mjs';
import {
  answersAre,
  cells,
  differenceOf,
  names,
  open,
  replyOf,
  table,
  tableIs,
  wordOf,
} from '../page_testing.mjs';

export const tests = {
  async 'the leak view: what grew between two times, from the address and by choice'(page, origin) {
    const MiB = 2 ** 20;
    const from = '2026-11-21T10:00:03', to = '2026-11-21T10:05:07';
    const seconds = (t) => Date.parse(t) / 1000;
    const asked = [];
    await answersAre(page, (body) => {
      asked.push(body);
      if (!body.before) return replyOf({ cache: 160 * MiB, table: 20 * MiB }, { unit: 'bytes' });
      return body.before.time_end === seconds(from)
        ? differenceOf({
            cache: [100 * MiB, 160 * MiB], buffer: [50 * MiB, 0], table: [0, 20 * MiB],
          })
        : differenceOf({ cache: [MiB, MiB] });
    });
    const rows = async () =>
      (await cells(page, '#functions tr')).map((row) => [0, 1, 3].map((i) => row[i]));
    const total = (text) =>
      page.waitForFunction(
        (t) => document.querySelector('#total')?.textContent.startsWith(t), text,
      );

    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=${to}`,
    );
    await total('80.0 MiB grown, 50.0 MiB shrunk, from ');
    assert.equal(asked.length, 1);
    const { before, ...after } = asked[0];
    assert.deepEqual([before.time_end, after.time_end], [seconds(from), seconds(to)]);
    assert.deepEqual([before, after].map((s) => s.time_end - s.time_start), [90, 90]);
    assert.equal(after.profile_event_type, 'mem-inuse');
    await page.waitForSelector('#functions tr'); // after the graph
    assert.deepEqual(await rows(), [
      ['cache', '60.0 MiB', '60.0 MiB'],
      ['table', '20.0 MiB', '20.0 MiB'],
      ['main', '0 B', '30.0 MiB'],
      ['buffer', '−50.0 MiB', '−50.0 MiB'],
    ]);
    await until(async () => (await names(page)).sort().join() === 'cache,main,table,web');
    await picture(page, 'growth');

    await page.uncheck('#growth');
    await total('180 MiB in use in 9 samples');
    assert.doesNotMatch(page.url(), /growth|before/);
    assert.equal(await page.isVisible('#grown_from'), false);
    await page.check('#growth');
    await total('80.0 MiB grown');
    await page.fill('#grown_from', '2026-11-21T09:00:01');
    await page.dispatchEvent('#grown_from', 'change');
    await total('0 B grown, 0 B shrunk');
    await until(async () => (await rows()).length === 0);
    await page.fill('#grown_from', ''); // is no time
    await page.focus('#search');
    assert.equal(await page.inputValue('#grown_from'), '2026-11-21T09:00:01');
    await page.fill('#grown_from', from);
    await page.dispatchEvent('#grown_from', 'change');
    await total('80.0 MiB grown');
    assert.equal(
      wordOf(page, 'before_to'),
      `${new Date(from).toISOString().slice(0, 19)}Z`,
    );
  },
  async 'the leak view says what both of its snapshots lack'(page, origin) {
    const from = '2026-11-21T10:00:00Z', to = '2026-11-21T10:05:00Z';
    const same = { reason: 'live_evicted', samples: 3 };
    await answersAre(page, () =>
      differenceOf(
        { f: [1 << 20, 3 << 20] },
        {
          before_summary: {
            profiles: 1,
            losses: [same, { reason: 'resolve', samples: 7 }],
            short_by: 2048,
            truncated: true,
            notes: ['no such tag', 'early'],
            estimated: { share: 0.5, error: 3072 },
          },
          summary: {
            losses: [same],
            notes: ['no such tag'],
            estimated: { share: 0.8, error: 4096 },
          },
        },
      ),
    );
    let choices;
    await page.route(
      '**/v1/profile/choices',
      (r) => ((choices = r.request().postDataJSON()), r.continue()),
    );
    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=${to}`,
    );
    await tableIs(page, 'f', 'main');
    await until(() => choices);
    assert.deepEqual(
      [choices.time_start + 90, choices.time_end],
      [from, to].map((t) => Date.parse(t) / 1000),
    );
    await page.unroute('**/v1/profile/choices');
    assert.equal(
      await page.textContent('#losses'),
      "3 samples lost: more blocks were in use than the kernel's table holds (live_evicted) · " +
        'before: 7 samples lost: the agent could not name the stacks (resolve) · ' +
        'before: too many stacks: the smallest are added up as [others], ' +
        "and another stack's value is too small by at most 2.00 KiB",
    );
    assert.equal(await page.textContent('#notes'), 'no such tag · before: early');
    assert.equal(
      await page.textContent('#estimated'),
      'estimated: 50 % of what happened was measured, ±5.00 KiB',
    );
  },
  async 'what shrank is in the table, however much grew'(page, origin) {
    const from = '2026-11-21T10:00:00Z';
    const grown = Array.from({ length: 600 }, (_, i) => [`g${i}`, [0, 1000 + i]]);
    await answersAre(page, () =>
      differenceOf({ shrunk: [5000, 0], ...Object.fromEntries(grown) }),
    );
    await open(
      page,
      `${origin}/#profile_event_type=mem-inuse&growth=1&grown_from=${from}&grown_to=2026-11-21T10:05:00Z`,
    );
    await until(async () => (await table(page))[0] === 'g599');
    assert.equal(await page.getAttribute('#table', 'aria-rowcount'), '603');
    await page.focus('#table');
    await page.keyboard.press('End');
    await until(async () => (await table(page)).at(-1) === 'shrunk');
  },
};
