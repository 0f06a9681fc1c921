// SPDX-License-Identifier: Apache-2.0
// A profile as columns: one array for each property of its nodes, and of its functions. All that is
// computed from a profile takes time in proportion to its nodes and does not recurse, because a
// profile may have 1,000,000 nodes and stacks of any depth.
import { shorten } from './names';

/** The functions of a profile: columns, too. A name comes from a process and may hold anything. */
export class Functions {
  private readonly shortNames: string[] = [];

  constructor(
    readonly names: readonly string[],
    readonly kinds: readonly string[], // those of colours.ts, and root
    readonly modules: readonly string[], // '': not known
    readonly files: readonly string[], // '': not known
    readonly lines: Uint32Array, // 0: not known
  ) {}

  /** The name without type arguments, made when it is first needed. */
  short(fn: number): string {
    return (this.shortNames[fn] ??= shorten(this.names[fn]));
  }

  /** "file:line", "file", or "" if the file is not known. */
  source(fn: number): string {
    const file = this.files[fn];

    return file && this.lines[fn] ? `${file}:${this.lines[fn]}` : file;
  }

  /** These functions, and behind them others that have no source. */
  with(others: { name: string; kind: string; module: string }[]): Functions {
    const lines = new Uint32Array(this.names.length + others.length);

    lines.set(this.lines);
    return new Functions(
      this.names.concat(others.map((f) => f.name)),
      this.kinds.concat(others.map((f) => f.kind)),
      this.modules.concat(others.map((f) => f.module)),
      this.files.concat(others.map(() => '')),
      lines,
    );
  }
}

/** The values of nodes. */
export interface Values {
  readonly self: Float64Array;
  readonly total: Float64Array; // self, and the totals of the children
}

/** Values, and the numbers of samples that they come from. */
export interface Measured extends Values {
  readonly samples: Values;
}

/** The same done with the values and with the samples. */
export const eachValues = (of: Measured, change: (values: Values) => Values): Measured => ({
  ...change(of),
  samples: change(of.samples),
});

/** Values of nodes that come after their parents. */
export function valuesOf(self: Float64Array, parent: Int32Array): Values {
  const total = self.slice();

  for (let i = total.length - 1; i > 0; i--) total[parent[i]] += total[i];
  return { self, total };
}

/**
 * A profile. Its nodes are in preorder: the subtree of node i is [i, end[i]), and node 0 is the
 * root. The children of a node are sorted: the greatest total (of a difference: both totals
 * together) first, then by name.
 */
export interface Columns extends Measured {
  readonly n: number;
  readonly fn: Uint32Array; // node -> its function
  readonly parent: Int32Array; // -1: the root
  readonly depth: Uint32Array;
  readonly end: Uint32Array; // the first node behind the subtree
  readonly before?: Measured; // of a difference: what the other selection has
  readonly inlined: Uint8Array; // 1: the compiler inlined the function here
  readonly functions: Functions;
}

/** Nodes in any order, but for node 0, which is the root. */
export type Nodes = Omit<Columns, 'n' | 'depth' | 'end'>;

/** By what the children of a node are sorted: the total, or of a difference both together. */
export const sizes = ({ total, before }: Pick<Columns, 'total' | 'before'>): Float64Array =>
  before ? total.map((value, node) => value + before.total[node]) : total;

const notFunctions = ['root', 'group', 'process', 'thread', 'cpu', 'missing'];

/** Whether a kind is that of a function, not of what ran it, or of time that nobody saw. */
export const isFunction = (kind: string): boolean => !notFunctions.includes(kind);

/** Sorts nodes into a profile. Throws an error if they are not one tree. */
export function arrange(nodes: Nodes): Columns {
  const order = preorder(nodes);
  const n = order.length;
  const place = new Uint32Array(n);
  const columns = {
    n,
    fn: new Uint32Array(n),
    parent: new Int32Array(n).fill(-1),
    depth: new Uint32Array(n),
    end: new Uint32Array(n),
    ...eachValues(nodes, (values) => inOrder(values, order)),
    before: nodes.before && eachValues(nodes.before, (values) => inOrder(values, order)),
    inlined: new Uint8Array(n),
    functions: nodes.functions,
  };
  const { parent, depth, end } = columns;

  for (let i = 0; i < n; i++) {
    const node = order[i];

    place[node] = i;
    columns.fn[i] = nodes.fn[node];
    columns.inlined[i] = nodes.inlined[node];
    if (i === 0) continue;
    parent[i] = place[nodes.parent[node]];
    depth[i] = depth[parent[i]] + 1;
  }
  for (let i = n - 1; i >= 0; i--) {
    end[i] = Math.max(end[i], i + 1);
    if (i > 0) end[parent[i]] = Math.max(end[parent[i]], end[i]);
  }
  return columns;
}

function inOrder({ self, total }: Values, order: Uint32Array): Values {
  const values = { self: new Float64Array(order.length), total: new Float64Array(order.length) };

  for (let i = 0; i < order.length; i++) {
    values.self[i] = self[order[i]];
    values.total[i] = total[order[i]];
  }
  return values;
}

/** The nodes in preorder. */
function preorder(nodes: Nodes): Uint32Array {
  const n = nodes.parent.length;
  const { children, first } = childLists(nodes);
  const order = new Uint32Array(n);
  const waiting = [0];
  let found = 0;

  while (waiting.length) {
    const node = waiting.pop()!;

    order[found++] = node;
    for (let i = first[node + 1]; i-- > first[node]; ) waiting.push(children[i]);
  }
  if (found < n) throw new Error('the answer of the hub is damaged: its nodes are not one tree');
  return order;
}

/** The children of node i, sorted, are children[first[i]] to children[first[i + 1] - 1]. */
function childLists({ parent, fn, functions, ...values }: Nodes) {
  const n = parent.length;
  const first = new Uint32Array(n + 1);
  const children = new Uint32Array(Math.max(n - 1, 0));
  const size = sizes(values);
  const name = (node: number): string => functions.names[fn[node]];
  const greatestFirst = (a: number, b: number): number =>
    size[b] - size[a] || Number(name(a) > name(b)) - Number(name(a) < name(b));

  for (let i = 1; i < n; i++) if (parent[i] >= 0 && parent[i] < n) first[parent[i] + 1]++;
  for (let i = 0; i < n; i++) first[i + 1] += first[i];
  const next = first.slice();
  for (let i = 1; i < n; i++)
    if (parent[i] >= 0 && parent[i] < n) children[next[parent[i]]++] = i;
  for (let i = 0; i < n; i++) sort(children, first[i], first[i + 1], greatestFirst);
  return { children, first };
}

/** Sorts a part of an array. An answer of the hub is sorted already. */
function sort(
  all: Uint32Array,
  from: number,
  to: number,
  compare: (a: number, b: number) => number,
): void {
  for (let i = from + 1; i < to; i++)
    if (compare(all[i - 1], all[i]) > 0) {
      all.subarray(from, to).sort(compare);
      return;
    }
}
