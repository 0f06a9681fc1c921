// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { parseFilter, printFilter } from './filter';
import { narrowed, valueOf } from './narrow';
import { defaults, type State } from './state';

const withFilter = (text: string): State => ({ ...defaults, filter: parseFilter(text) });
const narrow = (text: string, tag: string, value: string): string =>
  printFilter(narrowed(withFilter(text), tag, value).filter!);

test('a value takes the place of another one of its tag, and goes again', () => {
  assert.equal(narrow("pod='a' AND image!='x'", 'pod', 'b'), "pod='b' AND image!='x'");
  assert.equal(narrow("pod!='a'", 'pod', 'b'), "pod!='a' AND pod='b'");
  assert.equal(narrow("pod='a' AND image!='x'", 'pod', ''), "image!='x'");
  assert.equal(valueOf(withFilter("pod!='a' AND pod='b'"), 'pod'), 'b');
});

test('text that is more than conditions stays, in brackets', () => {
  assert.equal(narrow("pod='a' OR pod='b'", 'image', 'x'), "(pod='a' OR pod='b') AND image='x'");
  assert.equal(narrow("pod='a' OR pod='b'", 'image', ''), "pod='a' OR pod='b'");
});

test('the process is a choice of its own', () => {
  assert.deepEqual(narrowed(defaults, 'app_service', 'web'), { process: 'web' });
  assert.equal(valueOf({ ...defaults, process: 'web' }, 'app_service'), 'web');
});
