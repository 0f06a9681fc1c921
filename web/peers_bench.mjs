#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// How fast other flame graphs are with the profiles of flame_bench.mjs, in the same browser: those
// of speedscope, and of Grafana and Pyroscope. Prints one JSON object a line for `make bench`.
import { join } from 'node:path';
import { esbuild, launch, SOURCE, within } from './chromium.mjs';
import { memory, NODES, SIZE, tell } from './flame_measure.mjs';
import { install, PEERS, serve, showInSpeedscope, WEBGL } from './peers.mjs';

const ROUNDS = { stacks: 3, million: 1 };
const LIMIT_S = 45; // of a picture

async function bundle(entry, more) {
  const { outputFiles } = await esbuild.build({
    entryPoints: [entry], bundle: true, write: false, outdir: 'out', logLevel: 'error', ...more,
  });
  return outputFiles.find((f) => f.path.endsWith('.js')).text;
}

// ---- the same profile in the form of each ----

// A stack and a weight for each leaf, as the hub writes them.
function ofSpeedscope({ fn, depth, self, total, functions }) {
  const samples = [], weights = [], stack = [];

  for (let i = 0; i < fn.length; i++) {
    stack.length = depth[i];
    stack.push(fn[i]);
    if (!self[i]) continue;
    samples.push([...stack]);
    weights.push(self[i]);
  }
  const profile = {
    type: 'sampled', name: 'bench', unit: 'none', startValue: 0, endValue: total[0], samples,
    weights,
  };
  return JSON.stringify({
    $schema: 'https://www.speedscope.app/file-format-schema.json',
    shared: { frames: functions.names.map((name) => ({ name })) },
    profiles: [profile],
  });
}

const ofGrafana = ({ fn, depth, self, total, functions }) =>
  JSON.stringify({
    level: [...depth], value: [...total], self: [...self],
    label: [...fn].map((f) => functions.names[f]),
  });

// ---- their pages ----

async function showInGrafana(text) {
  window.show(text);
  while (!document.querySelector('canvas')) await new Promise(requestAnimationFrame);
}

const peers = {
  speedscope: { form: ofSpeedscope, show: showInSpeedscope, html: null },
  grafana: { form: ofGrafana, show: showInGrafana, html: '<div id="root"></div>' },
};

// Milliseconds from the text of a profile to its picture, and MB of the renderer then.
async function measure(peer, script, text) {
  const server = await serve(peer, script, text);
  const browser = await launch(...WEBGL);
  try {
    const page = await browser.newPage({ viewport: SIZE });
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.evaluate(`window.showProfile = ${peer.show}`);
    const ms = await within(LIMIT_S, 'a picture', page.evaluate(async () => {
      const profile = await (await fetch('/profile')).text();
      const began = performance.now();
      await window.showProfile(profile);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return performance.now() - began;
    }));
    return [ms, await memory(browser, page)];
  } finally {
    await browser.close();
    server.close();
  }
}

async function bench(name, size, script, profile) {
  const peer = peers[name];
  const text = peer.form(profile);
  const got = [];

  try {
    for (let i = 0; i < ROUNDS[size]; i++) got.push(await measure(peer, script, text));
  } catch (e) {
    console.error(`peers_bench.mjs: skip: ${name}, ${NODES[size]} nodes: ${e.message}`);
    return;
  }
  const [ms, mb] = [0, 1].map((at) => got.map((g) => g[at]));
  tell(`page.${size}.${name}`, ms, 'ms', '', `${NODES[size]} nodes, JSON to picture`);
  if (size === 'million') tell(`page.memory.${name}`, mb, 'MB', '', 'the Pss of its renderer');
}

try {
  install();
} catch (e) {
  console.error(`peers_bench.mjs: skip: speedscope, grafana: npm: ${e.message.split('\n')[0]}`);
  process.exit(0);
}
const testing = await bundle(join(SOURCE, 'profile/testing.ts'), { format: 'esm' });
const { largeProfile } = await import(`data:text/javascript,${encodeURIComponent(testing)}`);
const grafana = await bundle(join(PEERS, 'grafana.jsx'), {
  minify: true, format: 'iife', jsx: 'automatic', nodePaths: [join(PEERS, 'node_modules')],
  define: { 'process.env.NODE_ENV': '"production"' },
  loader: { '.svg': 'text', '.woff': 'empty', '.woff2': 'empty', '.ttf': 'empty' },
});
for (const [size, nodes] of Object.entries(NODES))
  for (const name of Object.keys(peers))
    await bench(name, size, name === 'grafana' ? grafana : '', largeProfile(nodes));
