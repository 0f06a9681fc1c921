#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// How fast the flame graph is in Chromium, and how large: one JSON object a line for `make bench`.
// Needs Chromium and the built page.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { BUILD, launch } from './chromium.mjs';
import { memory, NODES, SIZE, tell } from './flame_measure.mjs';
import { openGraph } from './flame_testing.mjs';

const ROUNDS = 5, ANSWER = 200_000;

// From the text of an answer to its picture, with the table of functions.
const answer = (page, nodes) =>
  page.evaluate(async (n) => {
    const text = JSON.stringify(treeOf(largeProfile(n)));
    const began = performance.now();
    const columns = fromTree(JSON.parse(text));

    graph.show(columns);
    functionTable(columns);
    await drawn();
    return performance.now() - began;
  }, nodes);

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
  }, NODES.million);

const firstDraw = (page) =>
  page.evaluate(async (n) => {
    const columns = largeProfile(n);
    const began = performance.now();
    graph.show(columns);
    await drawn();
    return performance.now() - began;
  }, NODES.million);

const rounds = {
  answer: [], stacks: [], million: [], first: [], between: [], script: [], memory: [],
};
for (let i = 0; i < ROUNDS; i++) {
  const browser = await launch();
  const newPage = (options) => browser.newPage(options);
  const page = await openGraph(newPage, { ...SIZE, reducedMotion: 'no-preference' });

  rounds.answer.push(await answer(page, ANSWER));
  rounds.first.push(await firstDraw(page));
  const { between, script } = await zoom(page);
  rounds.between.push(between);
  rounds.script.push(script);
  rounds.memory.push(await memory(browser, page));
  await page.context().close();
  const other = await openGraph(newPage, SIZE);
  rounds.stacks.push(await answer(other, NODES.stacks));
  rounds.million.push(await answer(other, NODES.million));
  await browser.close();
}
const html = gzipSync(readFileSync(join(BUILD, 'web/page.html')), { level: 9 });
tell('page.size', [html.length / 1000], 'kB', '<= 200', 'the whole page, gzip -9');
tell('page.answer', rounds.answer, 'ms', '<= 300', `${ANSWER} nodes, JSON to picture and table`);
tell('page.stacks', rounds.stacks, 'ms', '<= 1000', '100,000 distinct stacks, the same');
tell('page.million', rounds.million, 'ms', '', `${NODES.million} nodes, the same`);
tell('page.first_draw', rounds.first, 'ms', '', `${NODES.million} nodes`);
const most = `${NODES.million} nodes, the 95th percentile`;
tell('page.zoom_frame', rounds.between, 'ms', '<= 17', most);
tell('page.zoom_script', rounds.script, 'ms', '', 'the same');
tell('page.memory', rounds.memory, 'MB', '<= 300', `the renderer's Pss at ${NODES.million} nodes`);
