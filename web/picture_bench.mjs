#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// picture_bench.mjs ADDRESS ROWS: how long the page of a running hub takes from its address to its
// picture, in Chromium: one JSON object on a line. e2e/page/queries.py starts the hub.
import { launch, within } from './chromium.mjs';

const ROUNDS = 7;
const [address, rows] = process.argv.slice(2);

// Milliseconds from the navigation until the frames of the profile are on the screen.
async function picture(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();

  await page.addInitScript(() => {
    const look = () => {
      const graph = document.querySelector('.flame')?.flame;
      if (graph?.frameAt(10, 30)) // in the row below the root
        requestAnimationFrame(() => (window.drawn = performance.now()));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await page.goto(address);
  const took = await page.waitForFunction(() => window.drawn);
  const ms = await took.jsonValue();
  await context.close();
  return ms;
}

const browser = await launch();
const took = [];
for (let i = 0; i < ROUNDS; i++) took.push(await within(60, 'a picture', picture(browser)));
await browser.close();
const sorted = took.sort((a, b) => a - b).map(Math.round);
console.log(JSON.stringify({
  name: `page.picture_${rows}`, value: sorted[ROUNDS >> 1], least: sorted[0], most: sorted.at(-1),
  rounds: ROUNDS, unit: 'ms', goal: rows === '1e+07' ? '<= 500' : '',
  compared_with: 'an hour of one of two namespaces, from the address to the picture in Chromium',
}));
