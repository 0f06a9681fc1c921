// SPDX-License-Identifier: Apache-2.0
// From threads that wait for a CPU to those that have it.
import { ended } from './compare';
import type { Condition } from './filter';
import type { State } from './state';

/**
 * What used the CPUs of the nodes that the selection ran on, pod by pod: whatever else the filter
 * says, because the culprit is somebody else. Without nodes (there is no cluster), by process.
 */
export function cpuUsers(state: State, nodes: string[]): Partial<State> {
  const chosen = 'conditions' in state.filter ? state.filter.conditions : [];
  const of = (tag: string): Condition[] => chosen.filter((c) => c.tag === tag);
  const found: Condition[] = nodes.length === 0
    ? []
    : [{ tag: 'pod_node', op: nodes.length === 1 ? '=' : 'IN', values: nodes }];
  const ofNode = of('pod_node').length > 0 ? of('pod_node') : found;

  return {
    ...ended(state),
    event: 'on-cpu',
    process: '',
    filter: { conditions: [...of('pod_cluster'), ...ofNode] },
    view: 'breakdown',
    by: ofNode.length > 0 ? 'pod' : 'app_service',
    fn: null,
  };
}
