// SPDX-License-Identifier: Apache-2.0
// For each event, a sentence says what the width of a frame is, and words say of what a sum is.

export const events: Record<string, string> = {
  'on-cpu': 'Time on a CPU: what costs CPU.',
  'off-cpu':
    'Time that threads waited: what makes calls slow. The outermost frame of a stack is the ' +
    'cause. Waits add up over threads.',
  'mem-alloc':
    'Bytes that were allocated in the time: what makes work for the allocator and the garbage ' +
    'collector.',
  'mem-inuse': 'Bytes in use: of each process, the newest snapshot in the time.',
  'hbm-alloc': 'Bytes of GPU memory that were allocated in the time.',
  'hbm-inuse': 'Bytes of GPU memory in use: of each process, the newest snapshot in the time.',
  'on-gpu':
    'Time that kernels and copies ran on GPUs, below the code that launched them. It adds up ' +
    'over streams and devices.',
  rdma: 'Bytes posted to RDMA devices: those of the send queue, until you choose an operation.',
  'rdma-latency':
    'Time that requests to RDMA devices were under way, which adds up over requests.',
};

/** "3 s" of what. */
export const amounts: Record<string, string> = {
  'on-cpu': 'of CPU time',
  'off-cpu': 'of waiting',
  'mem-alloc': 'allocated',
  'mem-inuse': 'in use',
  'hbm-alloc': 'of GPU memory allocated',
  'hbm-inuse': 'of GPU memory in use',
  'on-gpu': 'of GPU time',
  rdma: 'posted',
  'rdma-latency': 'under way',
};
