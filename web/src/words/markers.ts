// SPDX-License-Identifier: Apache-2.0
// Sentences for the frames in brackets: what is missing in a stack, and why.
import { sentence } from './sentence';

/** Why the walk of a stack ended early: `[unwind: reason]`. */
const ends: Record<string, string> = {
  read: 'The kernel could not read the memory of the stack.',
  no_frame_pointer:
    'The code has no unwind rows, and its frame pointer leads nowhere: for example code of a ' +
    'just-in-time compiler, or hand-written assembly.',
  tables_pending:
    'The agent had not yet loaded the unwind tables of the process or the file. This happens in ' +
    'the first samples of a process.',
  no_table:
    'The unwind table of the file was refused or is over the budget, and the frame pointer leads ' +
    'nowhere.',
  expression: 'The unwind table has a rule that podflame does not evaluate.',
  register: 'The unwind table needs a register whose value is not known here.',
  stack_not_growing: 'The stack is damaged or unusual: the caller would not lie above its callee.',
  bad_address: 'The return address is one that no code can have.',
  no_goroutine: 'podflame could not find out which goroutine waited while its stack grew.',
  mapping_changed:
    'The code is of a file that the agent did not know there yet, or the process was changing ' +
    'what it has mapped.',
  runtime_pending:
    'The functions of the program are missing (for example those of Python): the sample was ' +
    'taken before the agent knew the runtime in the process.',
  '32_bit_code': 'podflame does not walk the stacks of 32-bit code.',
  code_differs_from_file:
    'The code in memory differs from its file, so names from the file would be wrong.',
  code_not_compared:
    'The agent could not compare the code in memory with its file, so names might be wrong.',
};

/** Why a runtime's functions are missing: `[python: trouble]`. */
const troubles: Record<string, string> = {
  not_in_memory:
    'A page that names the function was not in memory. The agent has it read, and the next ' +
    'sample finds it.',
  no_thread_state:
    'The runtime does not know the thread, or podflame did not find out which it is.',
  inconsistent: 'The sample was taken in the middle of a change, or the data has an unknown form.',
  too_long: 'A list in the process was longer than podflame searches.',
  unknown_code: 'The runtime has generated code of which podflame knows nothing.',
  no_name:
    'The function was gone, or the process had ended, before the agent could read its name.',
  frames_in_heap:
    'The rest of the stack of a virtual thread is in the heap. Below is the thread that runs it.',
};

/** Other frames in brackets. */
const markers: Record<string, string> = {
  '[truncated]': 'The stack has more frames than podflame takes: its outer end is missing.',
  '[stack trace lost]': 'The sample was counted, and its stack was lost on the way.',
  '[others]': 'The smallest stacks, added up: there were more than one answer may have.',
  '[smaller stacks]':
    'The smallest stacks below this caller, added up: there were too many frames, or the rest of ' +
    'the answer is still under way.',
};

/** Frames that the page makes of others. */
const made: Record<string, string> = {
  '[more callers]': 'The other callers: the function is called in too many ways to show all.',
  '[runtime stubs]': 'Code that a runtime generates for itself, folded into one frame.',
};

const folded = 'Functions of the runtime, folded into one frame.';

const unknown =
  'The address has no name: the file has no symbols. If you have the right, you can upload them ' +
  '(podflame symbols upload).';

/** The sentence for the name of a frame in brackets; '': it is not one of these. */
export function markerSentence(name: string): string {
  const [, who = '', why = ''] = /^\[(\w+): (\w+)\]$/.exec(name) ?? [];
  const trouble = sentence(troubles, why);

  if (/^\[unknown\b/.test(name)) return unknown;
  if (/^\[.* runtime\]$/.test(name)) return folded;
  if (who === 'unwind') return `The stack is not whole. ${sentence(ends, why)}`.trim();
  if (trouble) return `Functions are missing here. ${trouble}`;
  return sentence(markers, name) || sentence(made, name);
}
