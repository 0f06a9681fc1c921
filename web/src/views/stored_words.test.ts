// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Oldest } from '../api/types';
import { deletedText, placeText, sinceText } from './stored_words';

const app: Oldest = {
  cluster: null, namespace: 'app', unverified: false, oldest: 1_700_000_000, deleted_until: null,
};

test('whose data it is', () => {
  assert.equal(placeText(app), 'app');
  assert.equal(placeText({ ...app, cluster: 'edge' }), 'app in cluster edge');
  assert.equal(placeText({ ...app, namespace: null }), 'no namespace');
  assert.equal(
    placeText({ ...app, namespace: null, unverified: true }),
    'pods that the hub could not verify',
  );
  assert.ok(!placeText({ ...app, namespace: 'a\nb' }).includes('\n'));
});

test('from when on, and what was deleted', () => {
  assert.equal(sinceText(app), '2023-11-14T22:13:20Z');
  assert.equal(deletedText(app), 'nothing');
  assert.equal(deletedText({ ...app, deleted_until: 1_700_000_001 }), '2023-11-14T22:13:21Z');
});
