#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Runs the tests of the page (page_tests/TOPIC.mjs), in a real Chromium over a real `podflame
// local` that profiles a real busy process. An argument chooses those with this text in "TOPIC:
// NAME". Needs root, Chromium and the built page: `make all && web/page_test.mjs`.
import { readdirSync } from 'node:fs';
import { launch, run, within } from './chromium.mjs';
import { buildWorkload, newPage, startLocal, stopAll, waitForData } from './page_testing.mjs';

const tests = {};
const folder = new URL('page_tests/', import.meta.url);
let browser;

// A test in a page of its own.
const alone = (test) => async (origin) => {
  const page = await newPage(browser);

  await test(page, origin);
  await page.context().close();
};

for (const file of readdirSync(folder)) {
  const topic = await import(new URL(file, folder));
  for (const [name, test] of Object.entries(topic.tests))
    tests[`${file.replace('.mjs', '')}: ${name}`] = alone(test);
}

let count = { passed: 0, failed: 0 };
try {
  buildWorkload();
  const origin = await startLocal();
  await waitForData(origin);
  browser = await launch();
  count = await run(tests, origin);
  await within(60, 'the end of the browser', browser.close());
} catch (e) {
  console.log(`not ok ${e.stack}`);
  count.failed++;
} finally {
  await stopAll();
}
console.log(`${count.passed} passed, ${count.failed} failed`);
process.exit(count.passed && !count.failed ? 0 : 1);
