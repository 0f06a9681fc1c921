// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { isDark, keepTheme, KEY, readTheme } from './theme';

function storageWith(text: string | null) {
  let kept = text;

  return {
    getItem: (key: string) => (key === KEY ? kept : null),
    setItem: (_: string, value: string) => {
      kept = value;
    },
  };
}

test('the theme is what the browser has kept', () => {
  const storage = storageWith(null);

  assert.equal(readTheme(storage), 'system');
  keepTheme(storage, 'dark');
  assert.equal(readTheme(storage), 'dark');
  assert.equal(readTheme(storageWith('<b>')), 'system');
});

test('a browser that keeps nothing does no harm', () => {
  const refuse = (): never => {
    throw new Error('SecurityError');
  };
  const storage = { getItem: refuse, setItem: refuse };

  keepTheme(storage, 'dark');
  assert.equal(readTheme(storage), 'system');
});

test('the system decides unless the user has chosen', () => {
  assert.deepEqual(
    (['system', 'light', 'dark'] as const).map((t) => [isDark(t, false), isDark(t, true)]),
    [[false, true], [false, false], [true, true]],
  );
});
