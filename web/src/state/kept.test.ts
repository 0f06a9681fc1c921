// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { isDark, keep, readKept, THEME } from './kept';

function storageWith(text: string | null) {
  let kept = text;

  return () => ({
    getItem: (key: string) => (key === THEME.key ? kept : null),
    setItem: (_: string, value: string) => {
      kept = value;
    },
  });
}

test('a choice is what the browser has kept', () => {
  const storage = storageWith(null);

  assert.equal(readKept(THEME, storage), 'system');
  keep(THEME, 'dark', storage);
  assert.equal(readKept(THEME, storage), 'dark');
  assert.equal(readKept(THEME, storageWith('<b>')), 'system');
});

test('a browser that keeps nothing does no harm', () => {
  const refuse = (): never => {
    throw new Error('SecurityError');
  };

  for (const storage of [refuse, () => ({ getItem: refuse, setItem: refuse })]) {
    keep(THEME, 'dark', storage);
    assert.equal(readKept(THEME, storage), 'system');
  }
});

test('the system decides unless the user has chosen', () => {
  assert.deepEqual(
    (['system', 'light', 'dark'] as const).map((t) => [isDark(t, false), isDark(t, true)]),
    [[false, true], [false, false], [true, true]],
  );
});
