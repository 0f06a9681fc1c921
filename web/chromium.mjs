// SPDX-License-Identifier: Apache-2.0
// What all tests in Chromium share. The packages are those that build.sh has installed.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve as absolute } from 'node:path';
import { fileURLToPath } from 'node:url';

export const BUILD = process.env.BUILD ?? 'build';
const require = createRequire(absolute(BUILD, 'web/package.json'));
const { chromium } = require('playwright-core');
export const esbuild = require('esbuild');
export const SOURCE = fileURLToPath(new URL('src', import.meta.url));
const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

// Chromium without the parts that a user's window has: with them each page of a test costs more
// than twice as much CPU time.
export const launch = (...more) =>
  chromium.launch({
    executablePath: '/usr/bin/chromium-headless-shell',
    args: [...flags, ...more],
  });

// Gives what the promise gives, or an error if that takes longer than so many seconds.
export function within(seconds, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`${what}: no end after ${seconds} s`)),
      seconds * 1000,
    );
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const until = async (right) => {
  for (
    const end = Date.now() + 60_000;
    !(await right());
    await new Promise((done) => setTimeout(done, 50))
  )
    assert.ok(Date.now() < end, `${right}`);
};

// A picture of what the page shows, if somebody wants to see it.
export const picture = (page, name, options) =>
  process.env.SCREENSHOT &&
  page.screenshot({ path: `${process.env.SCREENSHOT}.${name}.png`, ...options });

// What axe says is wrong for people who use a page without a mouse, or without seeing it.
export async function complaints(page) {
  await page.evaluate(readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
  const { violations } = await page.evaluate(() => axe.run());
  return violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(', ')}`);
}

// What a page said was wrong, and what of that its test expects.
const errorsOf = new WeakMap();
const expectedOf = new WeakMap();

// The test expects errors of the page that match a pattern: at least one.
export const expectError = (page, pattern) => expectedOf.get(page).push(pattern);

function assertErrors(page) {
  const errors = errorsOf.get(page), expected = expectedOf.get(page);

  assert.deepEqual(errors.filter((e) => !expected.some((x) => x.test(e))), [], 'page errors');
  for (const pattern of expected)
    assert.ok(errors.some((e) => pattern.test(e)), `no error of the page matches ${pattern}`);
}

// Gives a test a function that opens pages, each in a context of its own, and closes them. It fails
// also if a page says an error that was not expected: an uncaught one, or one in the console, which
// has what the Content-Security-Policy forbids, too.
async function withPages(browser, name, test) {
  const pages = [];
  const newPage = async (options) => {
    const page = await browser.newPage(options);
    const errors = [];

    pages.push(page);
    errorsOf.set(page, errors);
    expectedOf.set(page, []);
    page.setDefaultTimeout(60_000);
    page.on('pageerror', (e) => errors.push(e.stack));
    page.on('console', (m) => {
      if (m.type() === 'error') errors.push(`${m.text()} ${m.location().url}`);
    });
    return page;
  };

  try {
    await within(180, name, test(newPage));
    pages.forEach(assertErrors);
  } catch (e) {
    for (const page of pages) console.log(`# ${page.url()}: ${errorsOf.get(page).join('; ')}`);
    throw e;
  } finally {
    await Promise.all(pages.map((page) => page.context().close()));
  }
}

// Runs tests, `atOnce` of them at a time: those whose name has the program's argument, if there is
// one. Each gets a function that opens a page. Prints how long each took, and returns how many
// passed and failed.
export async function run(browser, tests, atOnce = 1) {
  const count = { passed: 0, failed: 0 };
  const chosen = Object.entries(tests).filter(([name]) => name.includes(process.argv[2] ?? ''));
  const next = async () => {
    for (let test; (test = chosen.shift()); ) {
      const [name, body] = test;
      const began = performance.now();
      const took = () => `${((performance.now() - began) / 1000).toFixed(1)} s`;
      try {
        await withPages(browser, name, body);
        console.log(`ok ${name} (${took()})`);
        count.passed++;
      } catch (e) {
        console.log(`not ok ${name} (${took()}): ${e.stack}`);
        count.failed++;
      }
    }
  };

  await Promise.all(Array.from({ length: atOnce }, next));
  return count;
}
