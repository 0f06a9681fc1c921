// SPDX-License-Identifier: Apache-2.0
// What is missing and why, in words. Codes are those of podflame_samples_dropped_total and of the wire; others are shown as they are.
import type { Loss } from './profile';

const words: Record<string, string> = {
  agent_down: 'no agent ran on the node',
  asleep: 'the machine was suspended',
  counts_full: "more different stacks in a second than the kernel's table holds",
  counts_busy: "the kernel's table could not be written",
  scratch_busy: 'taken while another sample was taken on the same CPU',
  total_full: "of the host's Total: its table did not take them",
  no_pid: 'of processes that the agent cannot see',
  waits_full: "more threads waited than the kernel's table holds",
  end_unseen: 'waits whose end no program was run at',
  pending_full: "more allocations under way than the kernel's table holds",
  live_evicted: "more blocks lived than the kernel's table holds",
  may_throw: "an allocator's own operator new, whose return is not watched",
  go_heap_full: "more stacks in Go's heap profile than fit",
  window_full: "a window of the node, or the container's share of it, was full",
  resolve: 'stacks that could not be named',
  pipeline_full: 'the agent did not name samples as fast as the kernel gave them',
  too_large: 'the profile of one process was larger than a request to the hub may be',
  mailbox_full: "the node's disk was too slow",
  spool_full: "the hub was away for longer than the node's spool lasts",
  spool_unreadable: "windows of the node's spool could not be read",
  hub_refused: 'the hub refused the window; its log says why',
};

export function lossText({ reason, samples, time_ns }: Loss): string {
  const what = samples ? `${samples.toLocaleString()} samples lost` : `${((time_ns ?? 0) / 1e9).toFixed(1)} s without data`;

  return words[reason] ? `${what}: ${words[reason]} (${reason})` : `${what}: ${reason}`;
}
