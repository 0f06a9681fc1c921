// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { fileName } from './name';

const from = Date.UTC(2026, 10, 28, 17, 40) / 1000;
const times = '20261128T174000Z-20261128T175500Z';
const name = (...about: string[]): string => fileName(about, from, from + 900, 'svg');

test('a name says what the file is about, and of what time', () => {
  assert.equal(name('on-cpu', 'app', 'web'), `on-cpu_app_web_${times}.svg`);
  assert.equal(name('on-cpu', '', ''), `on-cpu_${times}.svg`);
});

test('names of pods make no path, no hidden file and no long name', () => {
  assert.equal(name('../../etc/pass wd'), `etc-pass-wd_${times}.svg`);
  assert.equal(name('a\u202e\n/', 'ä'), `a_${times}.svg`);
  assert.equal(name('w'.repeat(70_000)), `${'w'.repeat(60)}_${times}.svg`);
});
