// SPDX-License-Identifier: Apache-2.0
// Another tree made of a profile's nodes: nodes that get the same function below the same parent
// become one.
import { arrange, eachValues, valuesOf } from './columns';
import type { Columns, Functions, Measured, Values } from './columns';

/** A tree that grows. Node 0 is the root. */
export class Tree {
  n = 1;
  readonly fn: Uint32Array;
  readonly parent: Int32Array;
  readonly inlined: Uint8Array; // 1: all frames of the node are
  private readonly slots: Uint32Array; // a hash table of nodes; 0: free, as the root is no child

  /** At most so many nodes, the root among them. */
  constructor(root: number, max: number) {
    this.fn = new Uint32Array(max);
    this.parent = new Int32Array(max);
    this.inlined = new Uint8Array(max);
    this.slots = new Uint32Array(1 << (33 - Math.clz32(max)));
    this.fn[0] = root;
    this.parent[0] = -1;
  }

  /** The child of a node that has a function. It is made if there is none yet. */
  child(parent: number, fn: number, inlined: number): number {
    const { slots } = this;
    const mask = slots.length - 1;
    let at = Math.imul(parent, 0x9e3779b1) ^ Math.imul(fn, 0x85ebca6b);

    at = (at ^ (at >>> 15)) & mask;
    for (let node = slots[at]; node !== 0; node = slots[at]) {
      if (this.parent[node] === parent && this.fn[node] === fn) {
        this.inlined[node] &= inlined;
        return node;
      }
      at = (at + 1) & mask;
    }
    slots[at] = this.n;
    this.fn[this.n] = fn;
    this.parent[this.n] = parent;
    this.inlined[this.n] = inlined;
    return this.n++;
  }
}

/**
 * The tree as a profile. `place[i]` is the node that the own value of node i of the other profile
 * belongs to; -1: to none.
 */
export function rebuilt(
  of: Measured & Pick<Columns, 'before'>,
  tree: Tree,
  place: Int32Array,
  functions: Functions,
): Columns {
  const { n } = tree;
  const parent = tree.parent.subarray(0, n);
  const gather = ({ self }: Values): Values => {
    const sums = new Float64Array(n);

    for (let i = 0; i < place.length; i++) if (place[i] >= 0) sums[place[i]] += self[i];
    return valuesOf(sums, parent);
  };

  return arrange({
    fn: tree.fn.subarray(0, n),
    parent,
    ...eachValues(of, gather),
    before: of.before && eachValues(of.before, gather),
    inlined: tree.inlined.subarray(0, n),
    functions,
  });
}
