// SPDX-License-Identifier: Apache-2.0
// The answer of POST /v1/profile/tree as columns.
import { arrange, Functions, valuesOf, type Columns, type Measured } from './columns';
import { inOwnForm } from './names';

/** Lists of one property each. docs/api.md describes them. */
export interface TreeResult {
  strings: string[];
  kinds: string[];
  functions: Record<'name' | 'kind' | 'module' | 'file' | 'line', number[]>;
  nodes: {
    function: number[];
    depth: number[];
    self: number[];
    samples: number[]; // those of self
    before?: number[]; // self of the other selection
    before_samples?: number[];
  };
  inlined: number[];
}

/** null: the answer is empty. */
export function fromTree(result: TreeResult | null): Columns | null {
  if (!result) return null;
  const { nodes } = result;
  const parent = parents(nodes.depth);
  const inlined = new Uint8Array(parent.length);

  for (const node of result.inlined) inlined[node] = 1;
  return arrange({
    fn: Uint32Array.from(nodes.function),
    parent,
    ...measured(nodes.self, nodes.samples, parent),
    before: nodes.before && measured(nodes.before, nodes.before_samples!, parent),
    inlined,
    functions: functionsOf(result),
  });
}

/** The parents of nodes in preorder; -1: there is none. */
function parents(depths: number[]): Int32Array {
  const parent = new Int32Array(depths.length);
  const open: number[] = []; // the node before, below its callers

  for (let node = 0; node < depths.length; node++) {
    open.length = Math.min(open.length, depths[node]);
    parent[node] = open.length < depths[node] ? -1 : (open.at(-1) ?? -1);
    open.push(node);
  }
  return parent;
}

const measured = (values: number[], samples: number[], parent: Int32Array): Measured => ({
  ...valuesOf(Float64Array.from(values), parent),
  samples: valuesOf(Float64Array.from(samples), parent),
});

function functionsOf({ strings, kinds, functions }: TreeResult): Functions {
  const text = (i: number): string => strings[i] ?? '';
  const kind = (fn: number): string => kinds[functions.kind[fn]];

  return new Functions(
    functions.name.map((name, fn) => inOwnForm(text(name), kind(fn))),
    functions.name.map((name, fn) => ownKind(text(name), kind(fn))),
    functions.module.map(text),
    functions.file.map(text),
    Uint32Array.from(functions.line),
  );
}

/** Each cause of waiting has a colour: "[wait: lock]" is of kind "wait: lock". */
const ownKind = (name: string, kind: string): string =>
  kind === 'wait' ? name.slice(1, -1) : kind;
