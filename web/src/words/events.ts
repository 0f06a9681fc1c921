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
  cpu: 'CPU time, as the program itself has sampled it and pushed it.',
  wall: 'Time that threads ran or waited, as the program itself has sampled it and pushed it.',
  alloc_objects: 'Objects that were allocated in the time, as the program has pushed it.',
  alloc_space: 'Bytes that were allocated in the time, as the program has pushed it.',
  inuse_objects: 'Objects in use: the newest profile that each program has pushed in the time.',
  inuse_space: 'Bytes in use: the newest profile that each program has pushed in the time.',
  goroutines: 'Goroutines that live: the newest profile that each program has pushed in the time.',
  mutex_count: 'How often goroutines waited for a lock, below the function that unlocked it.',
  mutex_duration: 'Time that goroutines waited for a lock, below the function that unlocked it.',
  block_count: 'How often goroutines were blocked, as the program has pushed it.',
  block_duration: 'Time that goroutines were blocked, as the program has pushed it.',
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
  cpu: 'of CPU time',
  wall: 'of time',
  alloc_objects: 'objects allocated',
  alloc_space: 'allocated',
  inuse_objects: 'objects in use',
  inuse_space: 'in use',
  goroutines: 'goroutines',
  mutex_count: 'waits for locks',
  mutex_duration: 'of waiting for locks',
  block_count: 'times blocked',
  block_duration: 'of being blocked',
};
