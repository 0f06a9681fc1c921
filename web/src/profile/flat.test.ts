// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { fromFlat } from './flat';
import { outline } from './testing';

test('an answer without nodes is none', () => {
  assert.equal(
    fromFlat({ functions: null, function_types: null, node_values: { values: null } }),
    null,
  );
  assert.equal(fromFlat({ functions: [], function_types: [], node_values: { values: [] } }), null);
});

test('names, kinds, sources and inlined nodes', () => {
  const c = fromFlat(
    {
      functions: ['p', 'main', 'java/lang/String::hash', '[wait: lock]', '[k] futex'],
      function_types: ['P', 'A', 'A', '?', 'K'],
      node_values: {
        values: [[0, -1, 0, 9], [1, 0, 1, 9], [2, 1, 0, 5], [4, 1, 3, 3], [3, 2, 5, 5]],
      },
    },
    {
      files: ['main.c'],
      values: [[-1, 0], [0, 12], [-1, 0], [-1, 0], [-1, 0]],
      inlined_nodes: [2],
      languages: { jvm: [2], wait: [3] },
    },
  )!;

  assert.deepEqual(outline(c), [
    'p', '.main', '..java.lang.String.hash', '...[wait: lock]', '..[k] futex',
  ]);
  assert.deepEqual(c.functions.kinds, ['process', 'app', 'jvm', 'wait: lock', 'kernel']);
  assert.deepEqual([...c.inlined], [0, 0, 1, 0, 0]);
  assert.equal(c.functions.source(1), 'main.c:12');
  assert.deepEqual([...c.self], [0, 1, 0, 5, 3]);
});

test('a total may be more than its parts: the hub has cut children', () => {
  const c = fromFlat({
    functions: ['p', 'f'],
    function_types: ['P', 'A'],
    node_values: { values: [[0, -1, 0, 100], [1, 0, 40, 60]] },
  })!;

  assert.deepEqual([...c.total], [100, 60]);
});

test('what is not resolved, incomplete, or a leaf of memory has a kind of its own', () => {
  const functions = ['p', '[unknown]', '[/lib/x.so]', '[truncated]', '[l] malloc', 'Table', '[x]'];
  const c = fromFlat({
    functions,
    function_types: ['P', '?', '?', '?', 'O', 'O', 'O'],
    node_values: { values: functions.map((_, i) => [i, i ? 0 : -1, 1, 1]) },
  })!;

  assert.deepEqual(c.functions.kinds, [
    'process', 'unknown', 'unknown', 'marker', 'library', 'app', 'marker',
  ]);
});
