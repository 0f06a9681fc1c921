#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// speedscope.mjs FILE...: opens each file, NAME.speedscope.json of the profile NAME, in speedscope
// in Chromium, and prints its title and the rows of its table of functions. e2e/formats/run.py
// compares them with what is in the file.
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { launch, within } from './chromium.mjs';
import { install, serve, showInSpeedscope, WEBGL } from './peers.mjs';

const LIMIT_S = 60; // of a picture

async function show(browser, file) {
  const name = basename(file, '.speedscope.json');
  const server = await serve({ html: null }, '', readFileSync(file));
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.evaluate(`window.showProfile = ${showInSpeedscope}`);
    await within(LIMIT_S, 'a picture', page.evaluate(async (of) =>
      window.showProfile(await (await fetch('/profile')).text(), of), name));
    console.log(`title ${await page.title()}`);
    await page.keyboard.press('3'); // its view with a table
    await page.waitForSelector('table tr td');
    const rows = await page.$$eval('table tr:has(td)', (all) =>
      all.map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent.trim())));
    for (const row of rows) console.log(`row ${row.filter(Boolean).join(' | ')}`);
  } finally {
    await page.close();
    server.close();
  }
}

try {
  install();
} catch (e) {
  console.log(`skip: speedscope: npm: ${e.message.split('\n')[0]}`);
  process.exit(0);
}
const browser = await launch(...WEBGL);
for (const file of process.argv.slice(2)) await show(browser, file);
await browser.close();
