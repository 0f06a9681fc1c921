// SPDX-License-Identifier: Apache-2.0
// A profile as the user wants to see it. Whatever is folded or hidden, the root's total stays; a
// focus makes the subtree's total the whole.
import type { Columns } from './columns';
import { focus } from './focus';
import { nodeAt } from './path';
import { foldFunctions, GONE, type Fold, type FunctionId } from './folds';
import { rebuilt, Tree } from './rebuild';

export interface Chosen {
  fold: Fold;
  hidden: readonly FunctionId[];
  focus: readonly string[]; // as pathTo() of path.ts gives it
}

/** If the profile does not have the frame that is in focus, all of it is shown. */
export function transform(columns: Columns, chosen: Chosen): Columns {
  const shown = folded(columns, chosen);
  const node = nodeAt(shown, chosen.focus);

  return node > 0 ? focus(shown, node) : shown;
}

function folded(columns: Columns, { fold, hidden }: Chosen): Columns {
  const { n, fn, parent, inlined } = columns;
  const { functions, to, joins } = foldFunctions(columns.functions, fold, hidden);
  const tree = new Tree(fn[0], n);
  const place = new Int32Array(n);

  if (!fold.recursion && to.every((f, i) => f === i)) return columns;
  for (let i = 1; i < n; i++) {
    const caller = place[parent[i]];
    const f = to[fn[i]];

    if (f === GONE) place[i] = caller;
    else if (joins[f] && tree.fn[caller] === f) place[i] = caller;
    else if (fold.recursion && joins[f] && tree.fn[tree.parent[caller]] === f)
      place[i] = tree.parent[caller];
    else place[i] = tree.child(caller, f, inlined[i]);
  }
  return rebuilt(columns, tree, place, functions);
}
