// SPDX-License-Identifier: Apache-2.0
// The tags that have a place on the page of their own.

export interface Tag {
  tag: string;
  label: string;
  events?: string[]; // only these have it
  unset?: string; // the text of the choice of no value
  rare?: boolean; // a choice is shown where there is something to choose
}

/** Choices for all events. Workload comes first, because a person on call knows it. */
export const common: Tag[] = [
  { tag: 'pod_group', label: 'Workload' },
  { tag: 'pod_cluster', label: 'Cluster' },
  { tag: 'pod_ns', label: 'Namespace' },
  { tag: 'pod', label: 'Pod' },
  { tag: 'app_service', label: 'Process' },
  { tag: 'pod_node', label: 'Node' },
  { tag: 'trace_id', label: 'Trace', rare: true },
];

/** More tags of all events, by whose values a profile can be split. */
const more: Tag[] = [
  { tag: 'container', label: 'Container' },
  { tag: 'image', label: 'Image' },
  { tag: 'thread', label: 'Thread' },
];

/** Those of all events, then those of some events. */
export const choiceTags = (ofEvents: Tag[]): Tag[] => [
  ...common.filter((t) => !t.rare),
  ...ofEvents,
  ...common.filter((t) => t.rare),
];

export const isOfEvent = ({ events }: Tag, event: string): boolean =>
  !events || events.includes(event);

/** The tags by whose values a profile of an event can be split. */
export const groupTags = (ofEvents: Tag[], event: string): Tag[] => [
  ...choiceTags(ofEvents).filter((t) => !t.rare && isOfEvent(t, event)),
  ...more,
];

/** What else the hub stores of a profile or a sample, without the tags of some events only. */
const others = [
  'pod_group_type', 'pod_gpu', 'container_id', 'container_pid', 'process_id',
  'process_start_time', 'cpu', 'time', 'profile_language_type', 'profile_value_unit',
  'profile_id', 'sample_id',
];

const ofEvents = [
  'wait', 'gpu_device', 'gpu_context', 'gpu_stream', 'rdma_operation', 'rdma_qp_type',
  'rdma_device',
];

const stored = new Set([...[...common, ...more].map((t) => t.tag), ...others, ...ofEvents]);

/** Whether the hub stores a tag of this name. */
export const isStored = (name: string): boolean =>
  stored.has(name) || /^k8s\.label\../.test(name);
