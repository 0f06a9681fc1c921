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

export const launch = (...more) =>
  chromium.launch({ executablePath: '/usr/bin/chromium', args: [...flags, ...more] });

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

// What axe says is wrong for people who use a page without a mouse, or without seeing it.
export async function complaints(page) {
  await page.evaluate(readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
  const { violations } = await page.evaluate(() => axe.run());
  return violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(', ')}`);
}

// Runs tests one after another, each with the same arguments: those whose name has the program's
// argument, if there is one. Returns how many passed and failed.
export async function run(tests, ...args) {
  const count = { passed: 0, failed: 0 };

  for (const [name, test] of Object.entries(tests)) {
    if (!name.includes(process.argv[2] ?? '')) continue;
    try {
      await within(180, name, test(...args));
      console.log(`ok ${name}`);
      count.passed++;
    } catch (e) {
      console.log(`not ok ${name}: ${e.stack}`);
      count.failed++;
    }
  }
  return count;
}
