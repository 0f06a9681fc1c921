// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { colour, packed } from './colours';

test('a colour as a pixel', () => {
  const red = { hue: 0, saturation: 100, lightness: 50 };
  const grey = { hue: 200, saturation: 0, lightness: 20 };

  assert.equal(packed(red), 0xff0000ff);
  assert.equal(packed({ ...red, hue: 120 }), 0xff00ff00);
  assert.equal(packed({ ...red, hue: 240 }), 0xffff0000);
  assert.equal(packed(grey), 0xff333333);
});

test('a function has the same colour each time, and black text can be read on it', () => {
  for (const name of ['main', 'x'.repeat(65536), '']) {
    const { hue, lightness } = colour('app', name);

    assert.deepEqual(colour('app', name), colour('app', name));
    assert.equal(hue, 110);
    assert.ok(lightness >= 66 && lightness < 82);
  }
});
