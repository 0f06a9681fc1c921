// SPDX-License-Identifier: Apache-2.0
// The tags that have a place on the page of their own.

export interface Tag {
  tag: string;
  label: string; // its name, if it has no label of its own
  help?: string;
  events?: string[]; // only these have it
  unset?: string; // the text of the choice of no value
  rare?: boolean; // a choice is shown where there is something to choose
}

/** The name of a process, which a state has beside its filter. */
export const PROCESS = 'app_service';

/** Choices for all events. Workload comes first, because a person on call knows it. */
const common: Tag[] = [
  { tag: 'pod_group', label: 'Workload' },
  { tag: 'pod_cluster', label: 'Cluster' },
  { tag: 'pod_ns', label: 'Namespace' },
  { tag: 'pod', label: 'Pod' },
  { tag: PROCESS, label: 'Process' },
  { tag: 'pod_node', label: 'Node' },
  { tag: 'trace_id', label: 'Trace', rare: true },
];

/** More tags of all events, by whose values a profile can be split. */
const more: Tag[] = [
  { tag: 'container', label: 'Container' },
  { tag: 'image', label: 'Image' },
  { tag: 'thread', label: 'Thread' },
];

/** A tag as the hub describes it. */
export interface Described {
  name: string;
  help: string;
  events?: string[]; // only these have it
  title?: string; // its label, which people know better than the name
  unset?: string; // what a query without the tag is about, unless it is everything
}

/** All tags that the hub stores. First come those with a label, which more people know. */
export function labelled(stored: Described[]): Tag[] {
  const own = [...common, ...more];
  const isOwn = (name: string): boolean => own.some((t) => t.tag === name);
  const help = (tag: string): string | undefined => stored.find((t) => t.name === tag)?.help;
  const others = stored
    .filter((t) => !isOwn(t.name))
    .map(({ name, title, ...about }): Tag => ({ tag: name, label: title ?? name, ...about }));

  return [
    ...own.map((t) => ({ ...t, help: help(t.tag) })),
    ...others.filter((t) => t.events),
    ...others.filter((t) => !t.events),
  ];
}

/** The tag of a name, which may be a label of pods or no tag at all. */
export const tagOf = (tags: Tag[], name: string): Tag =>
  tags.find((t) => t.tag === name) ?? { tag: name, label: name };

/** Those of all events, then those of some events. */
export const choiceTags = (tags: Tag[]): Tag[] => [
  ...common.filter((t) => !t.rare),
  ...tags.filter((t) => t.events),
  ...common.filter((t) => t.rare),
];

export const isOfEvent = ({ events }: Tag, event: string): boolean =>
  !events || events.includes(event);

/** The tags by whose values a profile of an event can be split, without the labels of pods. */
export const groupTags = (tags: Tag[], event: string): Tag[] => [
  ...choiceTags(tags).filter((t) => !t.rare && isOfEvent(t, event)),
  ...more,
];

/** The same with labels, and with the one that is chosen, also if nothing has it; '': none is. */
export function offeredGroups(
  tags: Tag[], event: string, labels: string[], chosen: string,
): Tag[] {
  const offered = [...groupTags(tags, event), ...labelTags(labels)];

  return !chosen || offered.some((t) => t.tag === chosen)
    ? offered
    : [...offered, tagOf(tags, chosen)];
}

/** What else the hub stores of a profile or a sample, without the tags of some events only. */
const others = [
  'pod_group_type', 'pod_gpu', 'unverified', 'container_id', 'container_pid', 'process_id',
  'process_start_time', 'cpu', 'time', 'profile_language_type', 'profile_value_unit',
  'profile_id', 'sample_id', 'producer', 'session_id',
];

const ofEvents = [
  'wait', 'gpu_device', 'gpu_context', 'gpu_stream', 'rdma_operation', 'rdma_qp_type',
  'rdma_device',
];

const stored = new Set([...[...common, ...more].map((t) => t.tag), ...others, ...ofEvents]);

/** Behind it comes the name of any label of pods. Its own values are those names. */
export const LABEL = 'k8s.label.';

export const labelTags = (names: string[]): Tag[] =>
  names.map((name) => ({ tag: LABEL + name, label: LABEL + name, help: 'label of the pod' }));

/** The label of pods that a tag is; '': it is none. */
export const labelOf = (tag: string): string =>
  tag.startsWith(LABEL) ? tag.slice(LABEL.length) : '';

/** Behind it comes the name of any label of a profile that a program pushed. */
const PUSHED_LABEL = 'label.';

/** Whether the hub stores a tag of this name. */
export const isStored = (name: string): boolean =>
  stored.has(name) ||
  labelOf(name) !== '' ||
  (name.startsWith(PUSHED_LABEL) && name !== PUSHED_LABEL);
