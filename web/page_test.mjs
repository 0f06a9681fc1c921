#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Runs the tests of the page (page_tests/TOPIC.mjs), in a real Chromium over a real `podflame
// local` that profiles a real busy process. An argument chooses those with this text in "TOPIC:
// NAME". Needs root, Chromium, Go and the built page: `make all && web/page_test.mjs`.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { launch, run, within } from './chromium.mjs';
import { buildWorkload, startLocal, stopAll, VIEW, waitForData } from './page_testing.mjs';

const folder = new URL('page_tests/', import.meta.url);
const beside = {}, alone = {};

let count = { passed: 0, failed: 0 };
try {
  buildWorkload();
  const origin = await startLocal();
  for (const file of readdirSync(folder)) {
    const topic = await import(new URL(file, folder));
    for (const name of topic.alone ?? []) assert.ok(topic.tests[name], `no test: ${name}`);
    for (const [name, test] of Object.entries(topic.tests)) {
      const tests = topic.alone?.includes(name) ? alone : beside;
      tests[`${file.replace('.mjs', '')}: ${name}`] = async (newPage) =>
        test(await newPage(VIEW), origin, newPage);
    }
  }
  await waitForData(origin);
  const browser = await launch();
  for (const [tests, atOnce] of [[beside, 2], [alone, 1]]) {
    const { passed, failed } = await run(browser, tests, atOnce);
    count.passed += passed;
    count.failed += failed;
  }
  await within(60, 'the end of the browser', browser.close());
} catch (e) {
  console.log(`not ok ${e.stack}`);
  count.failed++;
} finally {
  await stopAll();
}
console.log(`${count.passed} passed, ${count.failed} failed`);
process.exit(count.passed && !count.failed ? 0 : 1);
