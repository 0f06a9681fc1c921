#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Runs the unit tests of the page, which lie beside their files (x.test.ts and .tsx in src), with
// Node's own runner. A pattern as argument chooses some of them. Needs the installed packages:
// `make all`.
import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { BUILD, esbuild, SOURCE } from './chromium.mjs';

const outdir = join(BUILD, 'web/unit');
const files = readdirSync(SOURCE, { recursive: true }).filter((f) => /\.test\.tsx?$/.test(f));

rmSync(outdir, { recursive: true, force: true });
await esbuild.build({
  entryPoints: files.map((f) => join(SOURCE, f)),
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20',
  sourcemap: 'inline',
  nodePaths: [join(BUILD, 'web/node_modules')],
  outdir,
  outbase: SOURCE,
  outExtension: { '.js': '.mjs' },
});
const { stdout, stderr } = spawnSync(
  process.execPath,
  [
    '--enable-source-maps',
    '--test',
    '--test-reporter=tap',
    ...process.argv.slice(2).map((pattern) => `--test-name-pattern=${pattern}`),
    ...files.map((f) => join(outdir, f.replace(/tsx?$/, 'mjs'))),
  ],
  { encoding: 'utf8' },
);
const count = (what) => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(stdout)?.[1] ?? 0);

console.log(stdout + stderr);
console.log(`${count('pass')} passed, ${count('fail')} failed`);
process.exit(count('pass') && !count('fail') ? 0 : 1);
