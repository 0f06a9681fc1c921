// SPDX-License-Identifier: Apache-2.0
// A profile without some of its stacks, as if nothing of them had been measured.
import type { Columns, Values } from './columns';
import { foldFunctions, keyOf, type Fold, type FunctionId } from './folds';
import { idleWaits } from './idle';
import { rebuilt, Tree } from './rebuild';

export interface LeftOut {
  /** All stacks that have one of these functions, as they are or as they are folded. */
  without: readonly FunctionId[];
  fold: Fold;
  withoutIdle: boolean; // waits of threads that had nothing to do
}

export function leaveOut(columns: Columns, { without, fold, withoutIdle }: LeftOut): Columns {
  const { n, fn, parent, inlined, functions } = columns;
  const gone = withoutIdle ? idleWaits(columns) : new Uint8Array(n);
  const isNamed = named(columns, fold, without);
  let some = false;

  for (let i = 1; i < n; i++) {
    gone[i] ||= gone[parent[i]] || isNamed[fn[i]];
    some ||= gone[i] === 1;
  }
  if (!some) return columns;
  const isNeeded = needed(columns, gone);
  const tree = new Tree(fn[0], n);
  const place = new Int32Array(n).fill(-1);

  place[0] = 0;
  for (let i = 1; i < n; i++)
    if (isNeeded[i]) place[i] = tree.child(place[parent[i]], fn[i], inlined[i]);
  return rebuilt(columns, tree, place, functions);
}

/** Of each function 1, if it is one of these, or is folded into one of them. */
function named({ functions }: Columns, fold: Fold, ids: readonly FunctionId[]): Uint8Array {
  const is = new Uint8Array(functions.names.length);

  if (ids.length === 0) return is;
  const keys = new Set(ids.map(keyOf));
  const folded = foldFunctions(functions, { ...fold, threads: pooled(fold) }, []);
  const isOne = ({ names, kinds }: Columns['functions'], fn: number): boolean =>
    keys.has(keyOf({ name: names[fn], kind: kinds[fn] }));

  for (let fn = 0; fn < is.length; fn++)
    is[fn] = Number(isOne(functions, fn) || isOne(folded.functions, folded.to[fn]));
  return is;
}

/** Threads that are not shown keep their names here. */
const pooled = ({ threads }: Fold): Fold['threads'] => (threads === 'none' ? 'each' : threads);

/** Of each node 1, if it is kept: it has a value of its own that stays, or such a callee. */
function needed({ n, parent, self, before }: Columns, gone: Uint8Array): Uint8Array {
  const isNeeded = new Uint8Array(n);
  const has = (values: Pick<Values, 'self'> | undefined, i: number): boolean =>
    values !== undefined && values.self[i] !== 0;

  for (let i = n - 1; i > 0; i--) {
    if (!gone[i] && (has({ self }, i) || has(before, i))) isNeeded[i] = 1;
    isNeeded[parent[i]] |= isNeeded[i];
  }
  return isNeeded;
}
