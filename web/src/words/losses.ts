// SPDX-License-Identifier: Apache-2.0
// The texts of losses: what is missing and why. The codes are those of
// podflame_samples_dropped_total and of the wire. The page shows an unknown code as it is.
import { sentence } from './sentence';

/** What is missing for a reason. docs/api.md describes it. */
export interface Loss {
  reason: string;
  samples: number;
  time_ns?: number;
  of_node?: boolean; // some process of a node of the selection has lost it
  hidden?: boolean; // how much is not told to this user
}

const losses: Record<string, string> = {
  agent_down: 'no agent ran on the node',
  asleep: 'the machine was suspended',
  counts_full: "more different stacks in a second than the kernel's table holds",
  counts_busy: "the kernel's table could not be written",
  scratch_busy: 'the CPU was busy with another sample',
  total_full: "CPU time of the whole host (shown as Total): the kernel's table for it was full " +
    'or could not be written',
  no_pid: 'samples of processes that the agent cannot see',
  waits_full: "more threads waited than the kernel's table holds",
  end_unseen: 'waits whose end the kernel did not report',
  pending_full: "more allocations were under way than the kernel's table holds",
  live_evicted: "more blocks were in use than the kernel's table holds",
  gpu_unseen: 'memory of a GPU that podflame could not follow: for example of a graph, a sparse ' +
    'array, or an array of an unknown format',
  gpu_context: "a GPU's context ended, or may have ended, whose memory is not exactly known",
  gpu_full: "more contexts, mappings or threads that use GPUs than the kernel's tables hold",
  gpu_unlaunched: 'work of a GPU whose launch podflame did not see, or has forgotten',
  gpu_unended: 'launches of GPUs without work until podflame detached from the process: the ' +
    'work ended later, or there was none because the call failed or recorded a graph',
  gpu_unread: "reports of a GPU's work that could not be read, or that cannot be true",
  gpu_missed: "work of a GPU that podflame's library reported while its probes were not attached",
  gpu_dropped: "work of a GPU for which NVIDIA's CUPTI had no room",
  gpu_untimed: "work of a GPU of which NVIDIA's CUPTI has no times",
  rdma_unread: 'lists of RDMA requests that the agent could not read to their end',
  rdma_long: 'lists of RDMA requests that are longer than the agent follows',
  rdma_late: 'a process used an RDMA queue pair before podflame probed the functions that post: ' +
    'what it posted until then is missing',
  rdma_batches: 'requests of a thread that fills more RDMA queue pairs at once than the agent ' +
    'follows',
  rdma_unmatched: 'completions of RDMA requests that podflame cannot assign to a post: it was ' +
    'not seen, or the program gives several requests the same number',
  rdma_full: 'RDMA requests that were under way and for which there was no more room, or whose ' +
    'completions podflame does not see',
  labels_lost: "the kernel's buffer had no room for their labels: a query for a label lacks " +
    'these samples, and so does one for rdma that names no operation',
  may_throw: "memory from an allocator's own operator new, whose return podflame does not probe",
  go_heap_full: "Go's heap profile has more stacks than podflame reads",
  window_full: "a window of the node, or the container's share of it, was full",
  resolve: 'the agent could not name the stacks',
  pipeline_full: 'the agent did not name samples as fast as the kernel gave them',
  too_large: 'the profile of one process was larger than a request to the hub may be',
  mailbox_full: "the node's disk was too slow",
  spool_full: "the hub was away for longer than the node's spool lasts",
  spool_unreadable: 'profiles that the node had stored until the hub could take them (its spool) ' +
    'could not be read',
  other: 'more kinds of losses in a second than the agent keeps apart',
  hub_refused: 'the hub refused the window; its log says why',
};

const BY_ANYONE = 'by some process on the nodes of the selection';
const HOW_MUCH = '(you may not see all namespaces, so not how much)';

export function lossText(loss: Loss): string {
  const { reason } = loss;
  const why = sentence(losses, reason);

  return `${amountText(loss)}: ${why ? `${why} (${reason})` : reason}`;
}

function amountText({ samples, time_ns = 0, of_node, hidden }: Loss): string {
  if (hidden) return `something lost ${BY_ANYONE} ${HOW_MUCH}`;
  if (!samples) return `${(time_ns / 1e9).toFixed(1)} s without data`;
  return `${samples.toLocaleString()} samples lost${of_node ? ` ${BY_ANYONE}` : ''}`;
}
