// SPDX-License-Identifier: Apache-2.0
// What calls a function, and what it calls. If the function calls itself, a stack counts once: at
// the outermost call.
import { eachValues, type Columns, type Measured, type Values } from './columns';
import type { FunctionId } from './folds';
import { rebuilt, Tree } from './rebuild';

/**
 * About how many steps up the callers of a function take. Behind the direct callers, each level
 * takes an eighth of those that are left; the smallest calls do not go on if they are more.
 */
const MAX_STEPS = 400_000;
const MORE = { name: '[more callers]', kind: 'marker', module: '' };

/** The function, then what it calls: its subtrees as one. null: the profile does not have it. */
export function callees(columns: Columns, of: FunctionId): Columns | null {
  const { n, fn, parent, end, inlined } = columns;
  const calls = outermostCalls(columns, of);
  const place = new Int32Array(n).fill(-1);

  if (calls.length === 0) return null;
  const tree = new Tree(fn[calls[0]], calls.reduce((sum, call) => sum + end[call] - call, 0));
  for (const call of calls) {
    place[call] = 0;
    for (let i = call + 1; i < end[call]; i++)
      place[i] = tree.child(place[parent[i]], fn[i], inlined[i]);
  }
  return rebuilt(columns, tree, place, columns.functions);
}

/**
 * The function, then its callers, then theirs, up to the thread: the value of a node is that of
 * the function when it is called in this way. null: the profile does not have the function.
 */
export function callers(columns: Columns, of: FunctionId, maxSteps = MAX_STEPS): Columns | null {
  const { n, depth, fn, parent, inlined, functions } = columns;
  const calls = greatestFirst(columns, outermostCalls(columns, of), maxSteps);
  const steps = calls.reduce((sum, call) => sum + depth[call], 0);
  const place = new Int32Array(n).fill(-1);
  const at = new Int32Array(n); // the frame that each call's way up has come to
  let left = maxSteps;

  if (calls.length === 0) return null;
  const max = Math.min(steps, calls.length + maxSteps) + calls.length + 1;
  const tree = new Tree(fn[calls[0]], max);
  for (const call of calls) {
    place[call] = 0;
    at[call] = call;
  }
  for (let open = calls; open.length > 0; ) {
    open = open.filter((call) => parent[at[call]] > 0);
    const most = left === maxSteps ? open.length : Math.max(0, left) >> 3;
    for (const call of open.subarray(most))
      place[call] = tree.child(place[call], functions.names.length, 0);
    open = open.subarray(0, most);
    left -= open.length;
    for (const call of open) {
      at[call] = parent[at[call]];
      place[call] = tree.child(place[call], fn[at[call]], inlined[at[call]]);
    }
  }
  return rebuilt(wholeSubtrees(columns), tree, place, functions.with([MORE]));
}

/** The calls; sorted by their values if all of them may be too many. */
function greatestFirst({ total, before }: Columns, calls: Uint32Array, maxSteps: number) {
  const size = (call: number): number => total[call] + (before?.total[call] ?? 0);

  return calls.length > maxSteps >> 3 ? calls.sort((a, b) => size(b) - size(a)) : calls;
}

/** The nodes of a function, but for those below another one of it. */
function outermostCalls({ n, fn, end, functions }: Columns, of: FunctionId): Uint32Array {
  const isSought = Uint8Array.from(functions.names, (name, f) =>
    Number(name === of.name && functions.kinds[f] === of.kind),
  );
  const calls: number[] = [];

  for (let i = 1; i < n; i = isSought[fn[i]] ? end[i] : i + 1) if (isSought[fn[i]]) calls.push(i);
  return Uint32Array.from(calls);
}

/** The totals of nodes as if they were their own values. */
function wholeSubtrees(columns: Columns): Measured & Pick<Columns, 'before'> {
  const whole = ({ total }: Values): Values => ({ self: total, total });

  return {
    ...eachValues(columns, whole),
    before: columns.before && eachValues(columns.before, whole),
  };
}
