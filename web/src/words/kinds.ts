// SPDX-License-Identifier: Apache-2.0
// Sentences for the kinds of frames and the causes of waits.
import { sentence } from './sentence';

export const kinds: Record<string, string> = {
  root: 'Everything that is selected.',
  group: 'A value of the tag by which the profile is split.',
  process: 'A process, by its name.',
  thread: 'A thread, by its name.',
  app: 'A function of the program itself.',
  library: 'A function of a shared library.',
  kernel: 'A function of the Linux kernel.',
  cuda: "A function of NVIDIA's driver or of one of its libraries.",
  jvm: 'A method of a Java program.',
  python: 'A function of a Python program.',
  lua: 'A function of a Lua program.',
  object: 'The class or type of an allocated object.',
  wait: 'What the thread waited for.',
  marker: 'A part of the stack is missing here. The name says why.',
  unnamed: 'Code whose function has no name.',
};

/** Kinds that the page makes itself, for one request. */
const ofRequest: Record<string, string> = {
  cpu: 'Time of the request on a CPU.',
  missing: 'Time of the request that nobody measured.',
};

/** What a thread waited for: `[wait: cause]`, and the tag `wait`. */
const waits: Record<string, string> = {
  runqueue: 'The thread could run, and had no CPU: others had it, or the CPU limit was reached.',
  disk: 'The thread waited in the kernel where no signal wakes it, mostly for a disk.',
  lock: 'The thread waited for another thread: a lock, a condition, or the end of a thread.',
  sleep: 'The thread slept for a time that it had chosen.',
  poll: 'The thread waited until one of several descriptors is ready. This is mostly idleness.',
  socket: 'The thread waited for data or room in a connection.',
  pipe: 'The thread waited for the other end of a pipe.',
  gpu: 'The thread waited in the driver of a GPU.',
  other: 'The thread waited for something that podflame does not tell apart.',
};

/** The sentence for a frame's kind ("wait: lock" is one, too); for a wait, that for its cause. */
export function kindSentence(kind: string, name: string): string {
  const [, cause = ''] = /^wait: (\w+)$/.exec(kind) ?? /^\[wait: (\w+)\]$/.exec(name) ?? [];

  if (kind.startsWith('wait')) return sentence(waits, cause) || kinds.wait;
  return sentence(kinds, kind) || sentence(ofRequest, kind);
}
