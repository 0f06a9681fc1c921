// SPDX-License-Identifier: Apache-2.0
// Profiles for tests, written as a person reads them.
import { arrange, Functions, type Columns, type Nodes } from './columns';
import type { TreeResult } from './tree';

/** A frame: its name, its value without its callees, and its callees. */
export type Tree = [name: string, self: number, ...callees: Tree[]];

interface Growing {
  fn: number[];
  parent: number[];
  self: number[];
  total: number[];
}

/**
 * The name "[k] f" is f of kind kernel, "f @/lib/m.so" is f of that module, "[wait: lock]" is a
 * cause of waiting, and the root is of kind root. Without a mark, kinds are app. Each sample has
 * the value 1.
 */
export function profileOf(tree: Tree): Columns {
  const { nodes, names } = nodesOf(tree);

  return arrange(columnsOf(nodes, names));
}

/** A difference of two trees of the same frames. */
export function differenceOf(before: Tree, after: Tree): Columns {
  const { nodes, names } = nodesOf(after);
  const { self, total, samples } = columnsOf(nodesOf(before).nodes, names);

  return arrange({ ...columnsOf(nodes, names), before: { self, total, samples } });
}

function nodesOf(tree: Tree): { nodes: Growing; names: string[] } {
  const names: string[] = [];
  const nodes: Growing = { fn: [], parent: [], self: [], total: [] };
  const add = ([name, self, ...callees]: Tree, parent: number): number => {
    const node = nodes.fn.length;

    if (!names.includes(name)) names.push(name);
    push(nodes, names.indexOf(name), parent, self);
    for (const callee of callees) nodes.total[node] += add(callee, node);
    return nodes.total[node];
  };

  add(tree, -1);
  return { nodes, names };
}

/**
 * A profile of so many nodes, the same each time. Its stacks have up to 60 frames, and each next
 * one leaves the one before it at random. Leaves have values of which a few are large.
 */
export function largeProfile(n: number): Columns {
  const names = Array.from({ length: 50_000 }, (_, i) => `name_of_function_${i}`);
  const nodes: Growing = { fn: [], parent: [], self: [], total: [] };
  const stack = [0];
  const random = randomNumbers();

  push(nodes, 0, -1, 0);
  while (nodes.fn.length < n) {
    for (let more = 1 + random(12); more > 0 && nodes.fn.length < n && stack.length < 60; more--) {
      push(nodes, 1 + random(names.length - 1), stack.at(-1)!, 0);
      stack.push(nodes.fn.length - 1);
    }
    const leaf = stack.at(-1)!;
    nodes.self[leaf] = nodes.total[leaf] = Math.ceil(1e6 / (1 + random(1e5)));
    stack.length = Math.max(1, stack.length - 1 - Math.min(random(12), random(60)));
  }
  for (let i = n - 1; i > 0; i--) nodes.total[nodes.parent[i]] += nodes.total[i];
  return arrange(columnsOf(nodes, names));
}

/** The answer of the hub that a profile comes from, whose functions have no module and file. */
export function treeOf({ fn, depth, self, samples, functions }: Columns): TreeResult {
  const { names } = functions;
  const kinds = [...new Set(functions.kinds)];
  const unknown = names.map(() => -1);

  return {
    strings: [...names],
    kinds,
    functions: {
      name: names.map((_, i) => i), kind: functions.kinds.map((kind) => kinds.indexOf(kind)),
      module: unknown, file: unknown, line: names.map(() => 0),
    },
    nodes: {
      function: [...fn], depth: [...depth], self: [...self], samples: [...samples.self],
    },
    inlined: [],
  };
}

/** Numbers from 0 to below a bound, the same ones each time. */
export function randomNumbers(seed = 1): (below: number) => number {
  let last = seed;

  return (below) => (last = (last * 48271) % 2147483647) % below;
}

function push(nodes: Growing, fn: number, parent: number, self: number): void {
  nodes.fn.push(fn);
  nodes.parent.push(parent);
  nodes.self.push(self);
  nodes.total.push(self);
}

function columnsOf({ fn, parent, self, total }: Growing, names: string[]): Nodes {
  const values = { self: Float64Array.from(self), total: Float64Array.from(total) };

  return {
    fn: Uint32Array.from(fn),
    parent: Int32Array.from(parent),
    ...values,
    samples: values,
    inlined: new Uint8Array(fn.length),
    functions: functionsOf(names),
  };
}

const marks: Record<string, string> = {
  '[k] ': 'kernel', '[l] ': 'library', '[j] ': 'jvm', '[y] ': 'python', '[u] ': 'unnamed',
  '[t] ': 'thread', '[p] ': 'process',
};

const kindOf = (mark: string, name: string): string =>
  /^\[wait: /.test(name) ? name.slice(1, -1) : (marks[mark] ?? 'app');

function functionsOf(names: string[]): Functions {
  const parts = names.map((text) => /^(\[\w\] )?(.*?)(?: @(.*))?$/s.exec(text)!);

  return new Functions(
    parts.map(([, , name]) => name),
    parts.map(([, mark, name], i) => (i === 0 ? 'root' : kindOf(mark, name))),
    parts.map(([, , , module]) => module ?? ''),
    names.map(() => ''),
    new Uint32Array(names.length),
  );
}

/** The names of the nodes, each below as many dots as it is deep. */
export const outline = ({ fn, depth, functions }: Columns): string[] =>
  [...fn].map((f, i) => '.'.repeat(depth[i]) + functions.names[f]);

/** The same with the total of each node, and what it has itself. */
export const outlineWithValues = (columns: Columns): string[] =>
  outline(columns).map((line, i) => `${line} ${columns.total[i]} ${columns.self[i]}`);
