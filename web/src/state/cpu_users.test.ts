// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { cpuUsers } from './cpu_users';
import { parseFilter, printFilter } from './filter';
import { defaults, type State } from './state';

const waiting: State = { ...defaults, event: 'off-cpu', process: 'search', by: 'thread' };
const users = (filter: string, nodes: string[]): Partial<State> =>
  cpuUsers({ ...waiting, filter: parseFilter(filter) }, nodes);
const filterOf = ({ filter }: Partial<State>): string => printFilter(filter!);

test('the pods of the nodes of a selection, of all namespaces and processes', () => {
  const one = users("pod_cluster='c' AND pod_ns='shop' AND wait='runqueue'", ['n1']);

  assert.equal(filterOf(one), "pod_cluster='c' AND pod_node='n1'");
  assert.deepEqual(
    [one.event, one.process, one.view, one.by],
    ['on-cpu', '', 'breakdown', 'pod'],
  );
  assert.equal(filterOf(users("pod_ns='shop'", ['n1', 'n2'])), "pod_node IN ('n1', 'n2')");
});

test('a node that is chosen stays; without nodes, processes tell them apart', () => {
  assert.equal(filterOf(users("pod_node='n2'", ['n1', 'n2'])), "pod_node='n2'");
  assert.equal(filterOf(users('', [])), '');
  assert.equal(users('', []).by, 'app_service');
});
