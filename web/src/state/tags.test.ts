// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { labelled, offeredGroups, tagOf } from './tags';

const stored = [
  { name: 'pod_cluster', help: 'cluster' },
  { name: 'pod', help: 'pod' },
  { name: 'container_id', help: 'container id' },
  { name: 'wait', help: 'what the thread waited for', events: ['off-cpu'], title: 'Waits for' },
];

test('tags with a label come first, then those of some events, then the others', () => {
  const tags = labelled(stored);

  assert.deepEqual(tags.slice(0, 2).map((t) => [t.tag, t.label]),
    [['pod_group', 'Workload'], ['pod_cluster', 'Cluster']]);
  assert.deepEqual(tags.slice(-2).map((t) => [t.label, t.help]),
    [['Waits for', 'what the thread waited for'], ['container_id', 'container id']]);
  assert.equal(tags.filter((t) => t.tag === 'pod').length, 1);
});

test('labels of pods are offered to split by, and what is chosen is, also without data', () => {
  const of = (chosen: string): string[] =>
    offeredGroups(labelled(stored), 'on-cpu', ['app', 'tier'], chosen).map((t) => t.tag);

  assert.deepEqual(of('').slice(-2), ['k8s.label.app', 'k8s.label.tier']);
  assert.deepEqual(of('k8s.label.tier'), of(''));
  assert.deepEqual(of('k8s.label.gone'), [...of(''), 'k8s.label.gone']);
});

test('a tag that the page does not know has its name as the label', () => {
  assert.equal(tagOf(labelled(stored), 'pod').label, 'Pod');
  assert.deepEqual(tagOf([], 'k8s.label.app'), { tag: 'k8s.label.app', label: 'k8s.label.app' });
});
