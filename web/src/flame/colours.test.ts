// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  changeColour, colour, css, DARK, FOUND, kinds, LIGHT, luminance, moduleColour, packed, REST_FOUND,
  textOn,
} from './colours';

test('a colour as a pixel', () => {
  const red = { hue: 0, saturation: 100, lightness: 50 };
  const grey = { hue: 200, saturation: 0, lightness: 20 };

  assert.equal(packed(red), 0xff0000ff);
  assert.equal(packed({ ...red, hue: 120 }), 0xff00ff00);
  assert.equal(packed({ ...red, hue: 240 }), 0xffff0000);
  assert.equal(packed(grey), 0xff333333);
});

test('a colour of CSS is that of the pixel', () => {
  assert.equal(css({ hue: 0, saturation: 100, lightness: 50 }), '#ff0000');
  assert.equal(css({ hue: 210, saturation: 100, lightness: 10 }), '#001a33');
});

test('a function has the same colour each time, and black text can be read on it', () => {
  for (const name of ['main', 'x'.repeat(65536), '']) {
    const { hue, lightness } = colour('app', name);

    assert.deepEqual(colour('app', name), colour('app', name));
    assert.equal(hue, 110);
    assert.ok(lightness >= 66 && lightness < 82);
  }
});

test('a module has one hue, and its functions differ in lightness', () => {
  const [a, b] = ['malloc', 'free'].map((name) => moduleColour('/lib/libc.so.6', name));

  assert.equal(a.hue, b.hue);
  assert.notEqual(a.lightness, b.lightness);
  assert.notEqual(moduleColour('/bin/web', 'malloc').hue, a.hue);
});

test('a difference is orange or blue, stronger the greater it is, and noise is grey', () => {
  const of = (before: number, now: number) =>
    changeColour({ before, now, error: 0, isNoise: before === now });
  const all = [of(0, 1), of(1, 2), of(0.9, 1), of(1, 1), of(1, 0.9), of(2, 1), of(1, 0)];

  assert.deepEqual(all.map((c) => c.hue), [22, 22, 22, 0, 213, 213, 213]);
  assert.deepEqual(all.map((c) => Math.round(c.lightness)), [62, 77, 88, 80, 88, 77, 62]);
  assert.equal(of(1, 1).saturation, 0);
});

/** The contrast of two luminances (WCAG 2.2). */
const contrast = (a: number, b: number): number =>
  (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

test('text can be read on each colour, in both themes, also where frames are faded', () => {
  const names = Array.from({ length: 40 }, (_, i) => `function_${i}`);
  const frames = [
    ...Object.keys(kinds).flatMap((kind) => names.map((name) => colour(kind, name))),
    ...names.flatMap((name) => names.map((module) => moduleColour(module, name))),
    ...[0, 0.5, 0.9, 1.1, 2].map((before) =>
      changeColour({ before, now: 1, error: 0, isNoise: false })),
    FOUND,
    REST_FOUND,
  ];

  for (const theme of [LIGHT, DARK])
    for (const c of [...frames, theme.rest, ...frames.map(theme.faded)]) {
      const text = textOn(packed(c)) === '#000' ? 0 : 1;
      assert.ok(contrast(luminance(packed(c)), text) >= 4.5, css(c));
    }
});

test('frames stand out from the background, faded ones less', () => {
  for (const theme of [LIGHT, DARK]) {
    const away = (c: typeof FOUND): number =>
      contrast(luminance(packed(c)), luminance(packed(theme.background)));
    const app = colour('app', 'main');

    assert.ok(away(app) > away(theme.faded(app)) && away(theme.faded(app)) > 1.1);
  }
});
