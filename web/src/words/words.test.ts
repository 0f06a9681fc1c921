// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { actionOf, pageKeys } from './keys';
import { kindSentence } from './kinds';
import { lossText } from './losses';
import { markerSentence } from './markers';

test('a loss is said with its number, its reason in words and the code', () => {
  assert.equal(
    lossText({ reason: 'agent_down', samples: 0, time_ns: 1.5e9 }),
    '1.5 s without data: no agent ran on the node (agent_down)',
  );
  assert.match(lossText({ reason: 'mailbox_full', samples: 3 }), /^3 samples lost: the node's/);
  assert.equal(lossText({ reason: 'new_one', samples: 3 }), '3 samples lost: new_one');
  assert.equal(
    lossText({ reason: 'new_one', samples: 3, of_node: true }),
    '3 samples lost by some process on the nodes of the selection: new_one',
  );
  assert.equal(
    lossText({ reason: 'new_one', samples: 0, of_node: true, hidden: true }),
    'something lost by some process on the nodes of the selection ' +
      '(you may not see all namespaces, so not how much): new_one',
  );
});

test('a marker has a sentence, whoever wrote it', () => {
  assert.match(markerSentence('[truncated]'), /more frames/);
  assert.match(markerSentence('[unwind: read]'), /not whole\. The kernel could not read/);
  assert.match(markerSentence('[python: no_name]'), /before the agent could read its name/);
  assert.match(markerSentence('[jvm: frames_in_heap]'), /in the heap/);
  assert.match(markerSentence('[unknown] 0x0000000000401000'), /has no name/);
  assert.match(markerSentence('[Go runtime]'), /folded into one frame/);
  assert.match(markerSentence('[more callers]'), /too many ways/);
  assert.equal(markerSentence('[unwind: a_new_reason]'), 'The stack is not whole.');
  assert.equal(markerSentence('[python: a_new_trouble]'), '');
});

test('a name that only looks like a marker has none', () => {
  for (const name of ['main', '', '[]', 'a [truncated]', '[wait: lock]', '[libfoo.so]'])
    assert.equal(markerSentence(name), '', name);
  assert.equal(markerSentence('[constructor: constructor]'), '');
});

test('a wait is said by its cause, another kind as a kind', () => {
  assert.match(kindSentence('wait', '[wait: runqueue]'), /had no CPU/);
  assert.match(kindSentence('wait', '[wait: new]'), /What the thread waited for/);
  assert.match(kindSentence('wait: lock', 'lock'), /another thread/);
  assert.match(kindSentence('missing', 'missing'), /nobody measured/);
  assert.match(kindSentence('kernel', 'do_syscall_64'), /Linux kernel/);
  assert.equal(kindSentence('new', 'x'), '');
});

const press = (key: string, more = {}) =>
  actionOf({ key, ctrlKey: false, metaKey: false, altKey: false, ...more });

test('keys: each has one action, and none with Ctrl', () => {
  assert.equal(press('/'), 'search');
  assert.equal(press('?'), 'keys');
  assert.equal(press('x'), null);
  assert.equal(press('t', { ctrlKey: true }), null);
  assert.equal(new Set(pageKeys.map((k) => k.key)).size, pageKeys.length);
  assert.equal(new Set(pageKeys.map((k) => k.action)).size, pageKeys.length);
});
