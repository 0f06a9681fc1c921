// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { DAMAGED_KEY, forget, keep, KEY, MAX_FAVOURITES, readFavourites } from './favourites';

function storageOf(text?: string) {
  const items = new Map<string, string>();

  if (text !== undefined) items.set(KEY, text);
  return {
    getItem: (key: string) => items.get(key) ?? null,
    setItem: (key: string, value: string) => void items.set(key, value),
  };
}

const names = (storage: ReturnType<typeof storageOf>): string[] =>
  readFavourites(storage).favourites.map((f) => f.name);

test('favourites are found again by their names', () => {
  const storage = storageOf();

  assert.deepEqual(readFavourites(storage), { favourites: [], isDamaged: false });
  keep(storage, 'shop', 'pod_ns=shop');
  keep(storage, 'database', 'pod_ns=db');
  keep(storage, 'shop', 'pod_ns=shop&range=300');
  assert.deepEqual(readFavourites(storage), {
    favourites: [
      { name: 'database', address: 'pod_ns=db' },
      { name: 'shop', address: 'pod_ns=shop&range=300' },
    ],
    isDamaged: false,
  });
  forget(storage, 'shop');
  assert.deepEqual(names(storage), ['database']);
});

test('what is over a limit is refused and changes nothing', () => {
  const storage = storageOf();

  for (let i = 0; i < MAX_FAVOURITES; i++) keep(storage, `n${i}`, 'a');
  const before = storage.getItem(KEY);
  assert.throws(() => keep(storage, 'more', 'a'), /at most 100 favourites/);
  assert.throws(() => keep(storage, '', 'a'), /1 to 100 characters/);
  assert.throws(() => keep(storage, 'x'.repeat(101), 'a'), /1 to 100 characters/);
  assert.throws(() => keep(storage, 'n1', 'a'.repeat(20_001)), /too long/);
  assert.equal(storage.getItem(KEY), before);
  keep(storage, 'n1', 'b');
});

test('damaged content is told and not lost; what is whole of it is there', () => {
  for (const text of ['{', 'null', '7', '{"name":"a"}', '""']) {
    const storage = storageOf(text);
    assert.deepEqual(readFavourites(storage), { favourites: [], isDamaged: true });
    assert.equal(storage.getItem(KEY), text);
    keep(storage, 'new', 'a');
    assert.deepEqual(readFavourites(storage).isDamaged, false);
    assert.equal(storage.getItem(DAMAGED_KEY), text);
  }
  const some = '[{"name":"a","address":"x","more":1},{"name":"b"},[],{"name":"","address":""}]';
  const storage = storageOf(some);
  assert.deepEqual(readFavourites(storage), {
    favourites: [{ name: 'a', address: 'x' }], isDamaged: true,
  });
  forget(storage, 'a');
  assert.deepEqual(readFavourites(storage), { favourites: [], isDamaged: false });
  assert.equal(storage.getItem(DAMAGED_KEY), some);
});

test('content that is damaged twice is kept twice', () => {
  const storage = storageOf('{');

  keep(storage, 'a', 'x');
  storage.setItem(KEY, '}');
  keep(storage, 'b', 'y');
  assert.equal(storage.getItem(DAMAGED_KEY), '{\n}');
});
