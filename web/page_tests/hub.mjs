// SPDX-License-Identifier: Apache-2.0
// Tests of the page: answers that are late, cut, wrong or missing.
import assert from 'node:assert/strict';
import { complaints, expectError, until } from '../chromium.mjs';
import {
  answersAre,
  choicesAre,
  choicesOf,
  isStale,
  names,
  offered,
  open,
  replyOf,
  seriesOf,
  shows,
  startLocal,
  stopLocal,
  table,
  tableIs,
} from '../page_testing.mjs';

// The hub ends for all pages.
export const alone = [
  'a hub that ends is said, what is typed stays, and the next hub goes on with its data',
];

export const tests = {
  async 'an error is told, and what is older than it is no answer'(page, origin) {
    expectError(page, /status of 500/);
    await open(page, `${origin}/#`);
    await page.waitForSelector('#chart canvas');
    await page.route('**/v1/profile/tree', (r) =>
      r.fulfill({ status: 500, json: { OPT_STATUS: 'FAIL', DESCRIPTION: 'it took too long' } }),
    );
    await page.click('#reload');
    await page.waitForSelector('main.stale #error');
    assert.equal(await page.textContent('#error'), 'it took too long');
    await until(
      async () => (await page.$eval('#chart', (e) => getComputedStyle(e).opacity)) === '0.35',
    );
    assert.deepEqual(await complaints(page), []); // what is faded can be read
    await page.check('#short'); // no answer either
    await page.uncheck('#short');
    assert.ok((await isStale(page)) && (await page.isVisible('#error')));
    await page.unroute('**/v1/profile/tree');
    await page.click('#reload');
    await page.waitForSelector('main.stale', { state: 'detached' });
  },
  async 'every 10 s: an answer that takes longer is waited for'(page, origin) {
    const held = [];
    let asked = 0;
    await page.clock.install();
    await page.route('**/v1/profile/tree', (r) =>
      ++asked === 1 ? r.fulfill({ json: replyOf({ first: 1 }) }) : held.push(r),
    );
    await open(page, `${origin}/#`);
    await tableIs(page, 'first');
    await page.check('#live');
    await page.clock.runFor(10_000);
    await until(() => held.length === 1);
    await page.clock.runFor(35_000);
    await held[0].fulfill({ json: replyOf({ slow: 1 }) });
    await tableIs(page, 'slow');
    assert.equal(asked, 2);
    await until(async () => !(await page.isVisible('#busy')));
    await page.clock.runFor(10_000);
    await until(() => held.length === 2);
    await page.clock.runFor(60_000); // and one that never comes
    await until(
      async () => (await page.textContent('#error')) === 'the hub did not answer within 60 s',
    );
    assert.ok(await isStale(page));
  },
  async 'a new choice ends the old question; the old answer is faded until the new one is there'(
    page,
    origin,
  ) {
    const held = [],
      failed = [];
    const onFailed = (r) => failed.push(r.url().split('/').at(-1));
    let slow = true;
    await choicesAre(page, { pod: ['new'] });
    await answersAre(page, () => replyOf({ new: 1 }));
    await open(page, `${origin}/#`);
    await tableIs(page, 'new');
    page.on('requestfailed', onFailed);
    await page.route('**/v1/profile/*', (r) => (slow ? held.push(r) : r.fallback()));
    await page.selectOption('#choice-range', '3600');
    await until(() => held.length === 3);
    assert.ok(await isStale(page));
    slow = false;
    await page.selectOption('#choice-range', '21600');
    await until(async () => !(await isStale(page)) && !(await page.isVisible('#busy')));
    // they must have ended by now, and not by their own timeout
    assert.deepEqual(failed.sort(), ['choices', 'series', 'tree']);
    for (const r of held)
      await r
        .fulfill({
          json: r.request().url().endsWith('choices')
            ? choicesOf({ pod: ['old'] })
            : r.request().url().endsWith('series')
              ? seriesOf({ old: [1] })
              : replyOf({ old: 1 }),
        })
        .catch(() => {});
    assert.deepEqual(await table(page), ['new']);
    await page.click('#choice-pod');
    assert.deepEqual(await offered(page), ['all', 'new 1']);
    assert.equal(await page.isVisible('#error'), false);
  },
  async 'a hub that is away, and what is no hub, are told; when it is back the page is whole'(
    page,
    origin,
  ) {
    expectError(page, /ERR_CONNECTION_REFUSED/);
    expectError(page, /status of 503/);
    const says = (text) => until(async () => (await page.textContent('#error')).startsWith(text));
    await page.route('**/v1/**', (r) => r.abort('connectionrefused'));
    await open(page, `${origin}/#`);
    await says('the hub cannot be reached: ');
    await page.unroute('**/v1/**');
    await page.click('#reload');
    await until(async () => !(await page.isVisible('#error')) && !(await isStale(page)));
    assert.equal(await page.textContent('#store-note'), 'kept for this test only');
    await page.route('**/v1/profile/tree', (r) =>
      r.fulfill({ body: '<html>welcome</html>' }),
    );
    await page.click('#reload');
    await says('the answer does not come from a hub');
    await page.unroute('**/v1/profile/tree');
    await page.route('**/v1/profile/choices', (r) =>
      r.fulfill({ status: 503, json: { DESCRIPTION: 'too many at once' } }),
    );
    await page.click('#reload'); // only what else could be chosen is not known
    await says('too many at once');
    await until(async () => !(await isStale(page))); // the tree may come after the choices
  },
  async 'losses are shown'(page, origin) {
    await page.route('**/v1/profile/tree', async (r) => {
      const answer = await r.fetch();
      const body = await answer.json();
      body.summary.losses = [
        { reason: 'counts_full', samples: 1234, time_ns: 0 },
        { reason: 'agent_down', samples: 0, time_ns: 2.5e9 },
        { reason: 'new', samples: 2 },
      ];
      await r.fulfill({ response: answer, json: body });
    });
    await open(page, `${origin}/#`);
    await page.waitForSelector('#losses');
    assert.equal(
      await page.textContent('#losses'),
      '1,234 samples lost: ' +
        "more different stacks in a second than the kernel's table holds (counts_full) · " +
        '2.5 s without data: no agent ran on the node (agent_down) · 2 samples lost: new',
    );
  },
  async 'a cut answer says what of it is wrong, and by how much'(page, origin) {
    let summary = { truncated: true, cut_stacks: 0, short_by: 1500 };
    await answersAre(page, () => replyOf({ f: 9000 }, { summary }));
    await open(page, `${origin}/#`);
    const says = (text) => until(async () => (await page.textContent('#losses')) === text);
    await says(
      'too many stacks: the smallest are added up as [others], ' +
        "and another stack's value is too small by at most 1.50 ms",
    );
    summary = { truncated: true, cut_stacks: 0, short_by: 0 };
    await page.click('#reload');
    await says('too many stacks: the smallest are added up as [others]');
    summary = { truncated: true, cut_stacks: 1234 };
    await page.click('#reload');
    await says(
      'too many frames: 1,234 of the smallest stacks end in [smaller stacks]; ' +
        'all totals are complete',
    );
  },
  async 'a large profile is drawn before all of it has come'(page, origin) {
    const lines = [
      replyOf({ large: 9000 }, { preview: true }), replyOf({ large: 9000, tiny: 1 }),
    ];
    await page.addInitScript((texts) => {
      const real = window.fetch;
      const encoder = new TextEncoder();
      window.fetch = async (path, ...more) => {
        if (path !== '/v1/profile/tree') return real(path, ...more);
        const { preview } = JSON.parse(more[0].body);
        const body = new ReadableStream({
          start(stream) {
            if (preview) stream.enqueue(encoder.encode(`${texts[0]}\n`));
            window.goOn = () => {
              stream.enqueue(encoder.encode(texts[1]));
              stream.close();
            };
          },
        });
        return new Response(body, {
          headers: { 'Content-Type': `application/${preview ? 'x-ndjson' : 'json'}` },
        });
      };
    }, lines.map((line) => JSON.stringify(line)));
    await open(page, `${origin}/#`);
    await shows(page, 'large');
    assert.equal(await isStale(page), false);
    assert.match(await page.textContent('#total'), /^9\.00 ms of CPU time in /);
    // what would be wrong of a part
    assert.deepEqual([await page.$('#functions'), await page.$('#download')], [null, null]);
    await page.evaluate(() => window.goOn());
    await tableIs(page, 'large', 'tiny');
    assert.ok(await page.isVisible('#download'));
    await page.evaluate(() => (window.goOn = null));
    await page.click('#reload');
    await page.waitForFunction(() => window.goOn); // the hub is asked, and has not answered
    assert.deepEqual(await table(page), ['large', 'tiny']); // more than a preview has
    await page.evaluate(() => window.goOn());
    await until(async () => !(await isStale(page)));
  },
  async 'an answer that is cut off is said, and nothing typed is lost'(page, origin) {
    await answersAre(page, () => replyOf({ f: 100 }));
    await open(page, `${origin}/#`);
    await shows(page, 'f');
    await page.fill('#search', 'typed');
    await page.unroute('**/v1/profile/tree');
    await page.route('**/v1/profile/tree', (r) =>
      r.fulfill({ contentType: 'application/json', body: '{"OPT_STATUS": "SUCC' }));
    await page.click('#reload');
    await page.waitForSelector('#error:has-text("not JSON")');
    assert.deepEqual((await names(page)).slice(0, 2), ['p', 'f']); // the old answer, as such
    assert.ok(await isStale(page));
    assert.equal(await page.inputValue('#search'), 'typed');
  },
  async 'a hub that ends is said, what is typed stays, and the next hub goes on with its data'(
    page, origin,
  ) {
    expectError(page, /ERR_CONNECTION_(REFUSED|RESET)/);
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    await page.fill('#search', 'hot_');
    await stopLocal();
    await page.click('#reload');
    await page.waitForSelector('#error:has-text("cannot be reached")');
    assert.equal(await page.inputValue('#search'), 'hot_');
    assert.ok((await names(page)).includes('hot_function')); // the old answer, as such
    assert.ok(await isStale(page));
    assert.equal(await startLocal(Number(new URL(origin).port)), origin);
    await page.click('#reload');
    await until(async () => !(await isStale(page)));
    assert.equal(await page.$('#error'), null);
    assert.equal(await page.inputValue('#search'), 'hot_');
    await shows(page, 'hot_function'); // which the store has kept
  },
};
