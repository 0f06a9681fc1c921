// SPDX-License-Identifier: Apache-2.0
// Tests of the page: files that it saves.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { complaints, expectError, picture, until } from '../chromium.mjs';
import { answersAre, open, replyOf, replyOfTree, shows, tableIs } from '../page_testing.mjs';

const NAME =
  /^on-cpu_app_web_20261128T174000Z-20261128T175500Z\.(svg|png|csv|folded\.txt|pb\.gz|speedscope\.json|otlp)$/;
const TIMES = 'from=2026-11-28T17:40:00Z&to=2026-11-28T17:55:00Z';
const CHOSEN = `#pod_ns=app&pod_group=web&${TIMES}`;

// Saves what is shown, and gives the file.
async function saved(page, title) {
  await page.click('#download');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.click(`.formats button:text-matches("^${title}\\\\b")`),
  ]);
  const path = await download.path();
  return { name: download.suggestedFilename(), path, bytes: readFileSync(path) };
}
const said = (page) => page.textContent('#download-said');
const pprof = (file) => execFileSync('go', ['tool', 'pprof', '-raw', file], { encoding: 'utf8' });

export const tests = {
  async 'pictures and the table of what is shown, with hostile names in it'(page, origin) {
    await answersAre(page, () =>
      replyOf({ '=cmd|"x"': 3000, '</title><script>hit()</script>': 5000 }));
    await open(page, `${origin}/${CHOSEN}`);
    await shows(page, '=cmd|"x"');
    const svg = await saved(page, 'SVG');
    assert.match(svg.name, NAME);
    const frames = await page.evaluate((text) => {
      const document = new DOMParser().parseFromString(text, 'image/svg+xml');
      const of = (g) => [
        g.querySelector('text')?.textContent, g.querySelector('title').textContent,
        Number(g.querySelector('rect').getAttribute('width')),
      ];
      return [...document.querySelectorAll('g')].map(of);
    }, svg.bytes.toString());
    const width = await page.$eval('#chart', (e) => e.clientWidth);
    assert.deepEqual(
      frames.map(([label, title]) => [label, title.replace(/ — .*/, '')]),
      [
        ['p', 'p'],
        ['</title><script>hit()</script>', '</title><script>hit()</script> (program)'],
        ['=cmd|"x"', '=cmd|"x" (program)'],
      ],
    );
    assert.ok(Math.abs(frames[1][2] - (width * 5) / 8) < 2);
    const csv = await saved(page, 'CSV');
    assert.match(csv.name, NAME);
    assert.deepEqual(csv.bytes.toString().split('\r\n').slice(1), [
      '"</title><script>hit()</script>","app","",5000,62.5,5000,62.5',
      '"\'=cmd|""x""","app","",3000,37.5,3000,37.5',
      '',
    ]);
    const png = await saved(page, 'PNG');
    assert.match(png.name, NAME);
    // as wide as the graph, with two pixels for each of its pixels; the frame has its colour
    const [size, colour, want] = await page.evaluate(async (base64) => {
      const image = new Image();
      image.src = `data:image/png;base64,${base64}`;
      await image.decode();
      const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
      context.drawImage(image, 0, 0);
      const box = document.querySelector('#chart').flame.boxes()[1];
      const [r, g, b] = context.getImageData(2 * (box.width - 6), 2 * (28 + 22), 1, 1).data;
      const hex = [r, g, b].map((v) => v.toString(16).padStart(2, '0')).join('');
      return [[image.width, image.height], `#${hex}`, box.colour];
    }, png.bytes.toString('base64'));
    assert.deepEqual(size, [2 * width, 2 * (28 + 2 * 18)]);
    assert.equal(colour, want);
    assert.equal(await said(page), '');
  },
  async 'the menu is in the window, and can be used without a mouse'(page, origin) {
    await answersAre(page, () => replyOf({ f: 1 }));
    await open(page, `${origin}/${CHOSEN}`);
    await tableIs(page, 'f');
    for (const width of [1200, 390]) {
      await page.setViewportSize({ width, height: 900 });
      await page.focus('#download');
      await page.keyboard.press('Enter');
      await page.waitForSelector('.popup');
      const { x, width: w } = await page.locator('.popup').boundingBox();
      assert.ok(x >= 0 && x + w <= width, `${x} to ${x + w} of ${width}`);
      assert.deepEqual(await complaints(page), []);
      await picture(page, `download-${width}`);
      await page.keyboard.press('Tab');
      await page.keyboard.press('Escape');
      assert.equal(await page.isVisible('.popup'), false);
      assert.equal(await page.evaluate(() => document.activeElement.textContent), 'download');
    }
  },
  async 'a picture that is too high says what it lacks'(page, origin) {
    let tree = ['leaf', 'app', 100];
    for (let i = 500; i-- > 0; ) tree = [`f${i}`, i ? 'app' : 'root', 1, tree];
    await answersAre(page, () => replyOfTree(tree));
    await open(page, `${origin}/${CHOSEN}`);
    await shows(page, 'leaf');
    await saved(page, 'PNG');
    await until(async () => /lacks the 48 rows that are farthest/.test(await said(page)));
    const svg = await saved(page, 'SVG');
    assert.ok(svg.bytes.toString().includes('>leaf</text>'));
    assert.equal(await said(page), '');
  },
  async 'files for other tools have the selection'(page, origin) {
    await open(page, `${origin}/#app_service=pagework`);
    await shows(page, 'hot_function');
    const folded = await saved(page, 'Folded stacks');
    assert.match(folded.name, /^on-cpu_pagework_\d{8}T\d{6}Z-\d{8}T\d{6}Z\.folded\.txt$/);
    assert.match(folded.bytes.toString(), /^pagework;.*;main;hot_function \d+$/m);
    const speedscope = JSON.parse((await saved(page, 'speedscope')).bytes);
    assert.ok(speedscope.shared.frames.some((f) => f.name === 'cold_function'));
    assert.match(pprof((await saved(page, 'pprof')).path), /hot_function/);
    const otlp = (await saved(page, 'OTLP')).bytes;
    const raw = execFileSync('protoc', ['--decode_raw'], { input: otlp, encoding: 'utf8' });
    assert.match(raw, /^ {2}5: "hot_function"$/m); // ProfilesDictionary.string_table
  },
  async 'the token travels in the header, and the body has the selection'(page, origin) {
    const asked = [];
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.route('**/v1/profile/pprof', (r) => {
      asked.push(r.request());
      return r.fulfill({ body: 'a file' });
    });
    await page.goto(origin);
    await page.evaluate(() => sessionStorage.setItem('podflame-token', 'secret'));
    await open(page, `${origin}/${CHOSEN}`);
    await tableIs(page, 'f');
    const file = await saved(page, 'pprof');
    assert.match(file.name, NAME);
    assert.equal(file.bytes.toString(), 'a file');
    assert.equal(asked.length, 1);
    assert.equal(asked[0].method(), 'POST');
    assert.ok(!asked[0].url().includes('secret'));
    assert.equal(await asked[0].headerValue('authorization'), 'Bearer secret');
    assert.deepEqual(asked[0].postDataJSON(), {
      profile_event_type: 'on-cpu', profile_language_type: 'eBPF', app_service: '',
      tag_filter: "pod_ns='app' AND pod_group='web'",
      time_start: 1795887600, time_end: 1795888500,
    });
  },
  async 'a file that the hub refuses is said'(page, origin) {
    expectError(page, /status of 500/);
    await answersAre(page, () => replyOf({ f: 1 }));
    await page.route('**/v1/profile/folded', (r) =>
      r.fulfill({ status: 500, json: { DESCRIPTION: 'the file would be too large' } }));
    await open(page, `${origin}/${CHOSEN}`);
    await tableIs(page, 'f');
    await page.click('#download');
    await page.click('.formats button:text("Folded stacks")');
    await until(async () => (await said(page)) === 'the file would be too large');
    assert.equal(await page.isVisible('.popup'), false);
  },
};
