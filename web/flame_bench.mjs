#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// How fast the flame graph is in Chromium, and how large: one JSON object a line for `make bench`.
// Needs Chromium and the built page.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { BUILD, launch } from './chromium.mjs';
import { openGraph } from './flame_testing.mjs';

const ROUNDS = 5, ANSWER = 200_000, LARGE = 1_000_000;
const SIZE = { width: 1280, height: 800 };

function tell(name, values, unit, goal = '', what = '') {
  const sorted = [...values].sort((a, b) => a - b);
  const round = (v) => Number(v.toPrecision(4));

  console.log(JSON.stringify({
    name, value: round(sorted[sorted.length >> 1]), least: round(sorted[0]),
    most: round(sorted.at(-1)), rounds: sorted.length, unit, goal, compared_with: what,
  }));
}

// From the text of an answer to its picture, with the table of functions.
const answer = (page) =>
  page.evaluate(async (n) => {
    const text = JSON.stringify(treeOf(largeProfile(n)));
    const began = performance.now();
    const columns = fromTree(JSON.parse(text));

    graph.show(columns);
    functionTable(columns);
    await drawn();
    return performance.now() - began;
  }, ANSWER);

// The times between frames, and of the script in each, while the graph zooms from the root along
// the greatest callees, and back. 95 of 100 are shorter.
const zoom = (page) =>
  page.evaluate(async (n) => {
    const columns = largeProfile(n);
    const between = [], script = [];
    const most = (all) => all.sort((a, b) => a - b)[Math.floor(0.95 * (all.length - 1))];
    // animation frames run in the order in which they are asked for: the graph's own comes between
    const follow = (last, isMoving) =>
      new Promise((done) => {
        const look = (now) => {
          if (last) between.push(now - last);
          last = now;
          script.push(performance.now() - now);
          if (isMoving()) requestAnimationFrame(look);
          else done();
        };
        requestAnimationFrame(look);
      });
    const zoomTo = async (node) => {
      graph.zoom(node);
      const end = performance.now() + 250; // longer than a zoom takes
      await follow(0, () => performance.now() < end);
    };

    graph.show(columns);
    await drawn();
    for (let node = 1, deep = 0; deep < 30 && columns.end[node] > node + 1; node++, deep++)
      if (deep % 3 === 0) await zoomTo(node);
    await zoomTo(0);
    return { between: most(between), script: most(script) };
  }, LARGE);

const firstDraw = (page) =>
  page.evaluate(async (n) => {
    const columns = largeProfile(n);
    const began = performance.now();
    graph.show(columns);
    await drawn();
    return performance.now() - began;
  }, LARGE);

// MB of the renderer's memory, once what is not used any more is gone.
async function memory(browser, page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('HeapProfiler.collectGarbage');
  const all = await (await browser.newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const pss = all.processInfo
    .filter((p) => p.type === 'renderer')
    .map((p) => /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${p.id}/smaps_rollup`, 'utf8'))[1]);

  return Math.max(...pss) / 1000;
}

const rounds = { answer: [], first: [], between: [], script: [], memory: [] };
for (let i = 0; i < ROUNDS; i++) {
  const browser = await launch();
  const page = await openGraph(browser, { ...SIZE, reducedMotion: 'no-preference' });

  rounds.answer.push(await answer(page));
  rounds.first.push(await firstDraw(page));
  const { between, script } = await zoom(page);
  rounds.between.push(between);
  rounds.script.push(script);
  rounds.memory.push(await memory(browser, page));
  await browser.close();
}
const html = gzipSync(readFileSync(join(BUILD, 'web/page.html')), { level: 9 });
tell('page.size', [html.length / 1000], 'kB', '<= 200', 'the whole page, gzip -9');
tell('page.answer', rounds.answer, 'ms', '<= 300', `${ANSWER} nodes, JSON to picture and table`);
tell('page.first_draw', rounds.first, 'ms', '', `${LARGE} nodes`);
tell('page.zoom_frame', rounds.between, 'ms', '<= 17', `${LARGE} nodes, the 95th percentile`);
tell('page.zoom_script', rounds.script, 'ms', '', 'the same');
tell('page.memory', rounds.memory, 'MB', '<= 300', `the renderer's Pss at ${LARGE} nodes`);
