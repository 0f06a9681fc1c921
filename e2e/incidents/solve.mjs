#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Solves the five incidents of docs/page.md as a person on call does, in a real Chromium on the
// page of a hub in a cluster: from an address with the namespace and the time, in at most four
// clicks each. At the end the page must show the culprit in words and colours. Run by
// e2e/tests/18-incidents.sh, which makes the incidents and sets
//   HUB, HUB_IP   the host of the hub's certificate, and its address
//   TOKEN         a token of a user who may read profiles
//   FROM, TO      when the incidents were, in Unix seconds
//   PICTURES      where pictures of the solved incidents go: NAME-1280.png, NAME-390.png
// A number as argument runs only the incidents that have it in their name.
import assert from 'node:assert/strict';
import { expectError, launch, run, until, within } from '../../web/chromium.mjs';

const { HUB, HUB_IP, TOKEN, FROM, TO, PICTURES } = process.env;
const MOST_CLICKS = 4;
const SECONDS = Number(TO) - Number(FROM);

const iso = (seconds) => new Date(1000 * Number(seconds)).toISOString().slice(0, 19) + 'Z';
const START = `https://${HUB}:20416/#pod_ns=incidents&from=${iso(FROM)}&to=${iso(TO)}`;

// The only way in which an incident is solved: each press of a button of the mouse counts.
class Person {
  clicks = 0;

  constructor(page) {
    this.page = page;
  }

  count(clicks, element) {
    this.clicks += clicks;
    assert.ok(this.clicks <= MOST_CLICKS, `click ${this.clicks}, on ${element}`);
  }

  async click(element, options) {
    this.count(1, element);
    await this.page.click(element, options);
  }

  // A list of the browser's own, in which no test can click: one click opens it, one chooses.
  async choose(list, text) {
    this.count(2, list);
    await this.page.selectOption(list, { label: text });
  }

  async filter(tag, value) {
    await this.click(`#choice-${tag}`);
    await this.click(`.popup .combobox-text:text-is("${value}")`);
  }

  // What can be done with a frame of the graph: the menu that the right button opens.
  async frame(box, title) {
    await this.click('#chart canvas', { position: middleOf(box), button: 'right' });
    await this.click(`[role=menuitem]:text-is("${title}")`);
  }
}

// ---- what the page shows ----

const frames = (page, chart = 'chart') =>
  page.$$eval(`#${chart}`, ([e]) => e?.flame.boxes() ?? []);
const middleOf = ({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 });
const isWithin = (inner, outer) =>
  inner.x >= outer.x - 1 && inner.x + inner.width <= outer.x + outer.width + 1;

// The widest frame of a name, among those below a caller; undefined: there is none.
async function widest(page, name, { chart = 'chart', below } = {}) {
  const all = await frames(page, chart);
  const outer = below && all.filter((b) => b.name === below);

  return all
    .filter((b) => b.name === name && (!outer || outer.some((o) => isWithin(b, o))))
    .sort((a, b) => b.width - a.width)[0];
}

async function frame(page, name, where) {
  await until(async () => (await widest(page, name, where)) !== undefined);
  return widest(page, name, where);
}

// What the line above the graph says about a frame when somebody points at it.
async function words(page, box, chart = 'chart') {
  await page.hover(`#${chart} canvas`, { position: middleOf(box) });
  await until(async () => (await page.textContent('#details')).startsWith(box.name));
  return page.textContent('#details');
}

// A frame's share of all in percent, as that line has it.
async function shareOf(page, name, { chart, below } = {}) {
  const said = await words(page, await frame(page, name, { chart, below }), chart);
  const found = /\(([\d.]+) %/.exec(said);

  assert.ok(found, said);
  return Number(found[1]);
}

// The colour of the canvas near the left end of a frame.
const pixelOf = (page, { x, y }) =>
  page.$eval(
    '#chart canvas',
    (canvas, at) => [...canvas.getContext('2d').getImageData(...at, 1, 1).data].slice(0, 3),
    [x + 2, y + 2],
  );

const rows = (page, table) =>
  page.$$eval(`${table} tr`, (all) =>
    all.map((r) => [...r.cells].map((c) => c.textContent.trim())));

// "25.3 s" and "1.2 min" in seconds
const secondsOf = (text) => {
  const [, number, unit] = /([\d.]+) (ms|s|min)\b/.exec(text);

  return Number(number) * { ms: 0.001, s: 1, min: 60 }[unit];
};

// ---- the incidents ----

const incidents = {
  async '1 a slow release'(person, page) {
    await person.filter('app_service', 'checkout');
    await person.click('#view-breakdown');
    await page.waitForSelector('#groups tr:has-text("checkout-v2")');
    const [first, ...others] = await rows(page, '#groups tbody');
    assert.equal(first[0], 'checkout-v2', 'the pod that uses most CPU');
    assert.deepEqual(others.map((r) => r[0]).sort(), ['checkout-v1-a', 'checkout-v1-b']);
    await person.click('#groups tr:has-text("checkout-v2") >> text=compare');

    const culprit = await frame(page, 'round_slowly');
    const said = await words(page, culprit);
    const [, now, before] = /now ([\d.]+) %, before ([\d.]+) %: \+[\d.]+ points/.exec(said);
    assert.ok(now > 50 && before < 1, said);
    const [red, green, blue] = await pixelOf(page, culprit);
    assert.ok(red > green && green > blue && red - blue > 100, `orange: ${[red, green, blue]}`);
    const caller = await frame(page, 'price_of_cart');
    assert.ok(isWithin(culprit, caller), 'round_slowly is called by price_of_cart');
    const row = (await rows(page, '#functions'))[0];
    assert.equal(row[0], 'round_slowly', 'the first row of the table');
    assert.match(row.at(-1), /^\+[5-9]\d\.\d points$/);
  },
  async '2 a lock'(person, page) {
    await person.choose('#choice-profile_event_type', 'off-cpu');
    // the table comes with the whole answer, whose graph does not change any more
    await page.waitForSelector('#functions tr:has-text("[wait: lock]")');
    await person.frame(await frame(page, 'reserve_stock'), 'Callers and callees');

    for (const name of ['place_order', 'return_goods']) // who calls it
      assert.ok((await frame(page, name, { chart: 'callers' })).width > 50, name);
    const whole = await shareOf(page, 'reserve_stock', { chart: 'callees' });
    const below = { chart: 'callees', below: 'pthread_mutex_lock' };
    const waiting = await shareOf(page, '[wait: lock]', below);
    const asking = await shareOf(page, 'ask_warehouse', { chart: 'callees' });
    await frame(page, '[wait: socket]', { chart: 'callees', below: 'ask_warehouse' });
    const said = `reserve_stock ${whole}, its lock ${waiting}, ask_warehouse ${asking}`;
    // seven of eight threads wait for the one that asks; some of the time they are ready to run
    assert.ok(waiting > 0.6 * whole, said);
    assert.ok(asking > 0.02 * whole && asking < 0.3 * whole, said);
    const row = await page.textContent('#functions tr[aria-selected=true]');
    assert.match(row, /^reserve_stock/);
  },
  async '3 a leak'(person, page) {
    await person.choose('#choice-profile_event_type', 'mem-inuse');
    await person.click('#growth');

    await until(async () => /MiB grown/.test(await page.textContent('#total')));
    const leak = await frame(page, 'remember_session');
    const said = await words(page, leak);
    const [, MiB, share] = /— ([\d.]+) MiB \(([\d.]+) %/.exec(said);
    assert.ok(MiB > 8 && share > 90, said);
    assert.ok(isWithin(leak, await frame(page, 'handle_login')));
    for (const name of ['keep_in_cache', 'send_page'])
      assert.ok(((await widest(page, name))?.width ?? 0) < leak.width / 10, name);
  },
  async '4 a noisy neighbour'(person, page) {
    await person.choose('#choice-profile_event_type', 'off-cpu');
    const where = { below: 'wait_for_query' };
    const waiting = await shareOf(page, '[wait: runqueue]', where);
    const resting = await shareOf(page, '[wait: sleep]', where);
    assert.ok(waiting > resting, `search: ${waiting} % ready without a CPU, ${resting} % idle`);
    const box = await frame(page, '[wait: runqueue]', where);
    assert.match(await words(page, box), /The thread could run, and had no CPU: others had it/);
    await person.frame(box, 'Who had the CPUs');

    await page.waitForSelector('#groups tr:has-text("batch-export")');
    const table = await rows(page, '#groups tbody');
    const [pod, value, share] = table[0];
    const search = table.find((r) => r[0] === 'search');
    assert.equal(pod, 'batch-export', `${table}`);
    assert.ok(secondsOf(value) > 2 * secondsOf(search[1]), `${value}; search has ${search[1]}`);
    assert.match(share, /^\d\d\.\d %$/);
    assert.match(await page.textContent('#choice-pod_node'), /node/);
  },
  async '5 a throttled pod'(person, page) {
    await person.filter('app_service', 'thumbnails');
    await person.choose('#choice-profile_event_type', 'off-cpu');

    await page.waitForSelector('#throttled');
    const said = await page.textContent('#throttled');
    assert.match(said, /^throttled: the containers' CPU limits held them back for [\d.]+ (s|min)$/);
    // 18-incidents.sh has waited for 5 s of it
    assert.ok(secondsOf(said) >= 5 && secondsOf(said) <= 1.1 * SECONDS, said);
    assert.equal(await page.textContent('#choice-app_service .chip-value'), 'thumbnails');
  },
};

// ---- how it runs ----

async function signIn(page) {
  await page.goto(START);
  await page.waitForSelector('#sign-in[open]');
  await page.fill('#token', TOKEN);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#sign-in:not([open])', { state: 'attached' });
}

async function pictures(page, name) {
  for (const [width, height] of [[390, 844], [1280, 900]]) {
    await page.setViewportSize({ width, height });
    await page.screenshot({
      path: `${PICTURES}/${name.replaceAll(' ', '-')}-${width}.png`,
      fullPage: width < 500, // what is below the choices is to be seen, too
    });
  }
}

const solved = (name, solve) => async (newPage) => {
  // the hub's certificate is its own; 07-hub.sh and others check it
  const page = await newPage({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 } });
  const person = new Person(page);

  // the page finds out that nobody signs the user in
  expectError(page, /401 \(Unauthorized\) .*\/v1\/profile\/tags$/);
  await signIn(page);
  await until(async () => (await frames(page)).length > 0);
  try {
    await solve(person, page);
  } finally {
    await pictures(page, name);
  }
  console.log(`note ${name}: ${person.clicks} clicks`);
};

const tests = Object.fromEntries(
  Object.entries(incidents).map(([name, solve]) => [name, solved(name, solve)]),
);

let count = { passed: 0, failed: 0 };
let browser;
try {
  browser = await launch(`--host-resolver-rules=MAP ${HUB} ${HUB_IP}`);
  count = await run(browser, tests);
} catch (e) {
  console.log(`not ok ${e.stack}`);
  count.failed++;
} finally {
  await within(60, 'the end of the browser', browser?.close() ?? null).catch(() => {});
}
process.exit(count.passed && !count.failed ? 0 : 1);
