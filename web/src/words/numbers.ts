// SPDX-License-Identifier: Apache-2.0
// Sentences for the numbers of an answer and the columns of tables.

/** The members of an answer's summary. */
export const summary: Record<string, string> = {
  samples: 'How often podflame looked and found something of this selection.',
  stacks: 'Different stacks.',
  profiles: 'Stored profiles. A profile is one process in one window of time (10 s by default).',
  first: 'When the oldest profile of the answer ended.',
  last: 'When the newest profile of the answer ended.',
  processes: 'The names of the processes that the answer is about.',
  process_count: 'How many processes these are, by node, process id and start.',
  nodes: 'The nodes that the answer is about.',
  unnamed_samples: 'Samples with a frame that has no name.',
  incomplete_samples: 'Samples whose stack lacks frames. A frame in brackets says why.',
  finished_percent: 'The share of samples whose stack is whole, down to the first function.',
  estimated:
    'The agent measured only a part of what happened, chosen at random: allocations by their ' +
    'bytes, and only for a share of the time if all of it would have cost the pod more than its ' +
    'limit (limits.overheadPercent). The values are scaled up. ± is one standard error of the sum.',
  throttled_us:
    'How long CPU limits held back the containers. No stack has this time: the thread is in the ' +
    'queue of its CPU and does not wait.',
  truncated: 'There were more stacks or processes than one answer may have. All totals are right.',
  cut_stacks:
    'Stacks whose ends the answer leaves out, because it has too many frames. They end in ' +
    '[smaller stacks], and all totals are right. Select less to see them.',
  short_by:
    'By how much the value of another stack may be too small: the missing part is in [others].',
  losses: 'What is missing in this time for this selection, and why.',
  of_node:
    'Some process on the nodes of the selection has lost it: the agent does not know which one.',
  hidden:
    'The numbers are those of all namespaces of a node, and you may not see all namespaces.',
  notes: 'What you should know to read this answer.',
};

/** Columns of tables, and numbers of a frame. */
export const columns: Record<string, string> = {
  name: 'The function. A row has all calls of it; of a recursive function, each stack counts once.',
  self: 'What the function did itself, without the functions that it called.',
  total: 'What the function did, with all functions that it called.',
  share: 'The part of everything that is shown.',
  difference:
    'How much more the function has in the selection than in the one that it is compared with. ' +
    'The pointer on a row shows both, and the error.',
  per_second: 'The value divided by the seconds of the time.',
  per_cpu_second: 'The value divided by the seconds of CPU time that the selection used.',
};

/** Columns of the table of one request. */
export const request: Record<string, string> = {
  share: 'The part of how long the request took; without its duration, of what was seen.',
  samples:
    'How often podflame found a thread of the request here. A wait that lasts for several ' +
    'windows counts in each.',
  error:
    'One standard error of the time on a CPU, from the number of its samples. Waits are ' +
    'measured: the kernel reports when they begin and end.',
};
