// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { parse, print } from './address';
import { parseFilter, printFilter } from './filter';
import { chosenValue, hasTag, narrowed, withoutTag } from './narrow';
import { defaults, type State } from './state';

const withFilter = (text: string): State => ({ ...defaults, filter: parseFilter(text) });
const narrow = (text: string, tag: string, value: string): string =>
  printFilter(narrowed(withFilter(text), tag, value).filter);

test('a value takes the place of another one of its tag, and goes again', () => {
  assert.equal(narrow("pod='a' AND image!='x'", 'pod', 'b'), "pod='b' AND image!='x'");
  assert.equal(narrow("pod!='a'", 'pod', 'b'), "pod!='a' AND pod='b'");
  assert.equal(narrow("pod='a' AND image!='x'", 'pod', ''), "image!='x'");
  assert.equal(chosenValue(withFilter("pod!='a' AND pod='b'"), 'pod'), 'b');
});

test('text that is more than conditions stays, in brackets', () => {
  assert.equal(narrow("pod='a' OR pod='b'", 'image', 'x'), "(pod='a' OR pod='b') AND image='x'");
  assert.equal(narrow("pod='a' OR pod='b'", 'image', ''), "pod='a' OR pod='b'");
});

test('a value that needs quotes stays what it is, also in the address', () => {
  for (const value of ["it's", '"a" OR pod=\'b\'', 'back\\slash', 'line\nend', 'x) AND (y', '`']) {
    const state = { ...defaults, ...narrowed(defaults, 'image', value) };
    const text = printFilter(narrowed(withFilter('cpu=1 OR cpu=2'), 'image', value).filter);

    assert.equal(chosenValue(parse(print(state), 0), 'image'), value);
    assert.equal(chosenValue(withFilter(text.replace(/^.*\) AND (?=image)/s, '')), 'image'), value);
  }
});

test('the process is a choice of its own', () => {
  assert.equal(narrowed(defaults, 'app_service', 'web').process, 'web');
  assert.equal(chosenValue({ ...defaults, process: 'web' }, 'app_service'), 'web');
});

test('all conditions on a tag are taken out, and the others stay', () => {
  const state = { ...withFilter("pod!='a' AND pod IN ('b', 'c') AND image='x'"), process: 'web' };

  assert.equal(printFilter(withoutTag(state, 'pod').filter), "image='x'");
  assert.equal(withoutTag(state, 'pod').process, 'web');
  assert.equal(withoutTag(state, 'app_service').process, '');
  assert.deepEqual(
    ['pod', 'image', 'app_service', 'pod_ns'].map((tag) => hasTag(state, tag)),
    [true, true, true, false],
  );
  assert.equal(hasTag(withFilter("pod='a' OR pod='b'"), 'pod'), false); // only text can say it
});
