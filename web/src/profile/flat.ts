// SPDX-License-Identifier: Apache-2.0
// The flat form of ProfileTracing as columns.
import { arrange, Functions, type Columns } from './columns';
import { inOwnForm } from './names';

export interface FlatResult {
  functions: string[] | null;
  function_types: string[] | null;
  /** Of each node: function, parent (-1: the root), self, total. */
  node_values: { values: [number, number, number, number][] | null };
}

/**
 * An addition of podflame to the flat form: where functions are defined, which nodes are inlined,
 * and which functions are of another language than C and its like.
 */
export interface Sources {
  files: string[];
  values: [number, number][]; // of each function: its file (-1: not known) and line
  inlined_nodes: number[];
  languages?: Record<string, number[]>; // kind -> functions: jvm, python, lua, object, wait
}

const kinds: Record<string, string> = {
  H: 'root',
  P: 'process',
  T: 'process',
  K: 'kernel',
  L: 'library',
  C: 'cuda',
  A: 'app',
};

/** null: the answer is empty. */
export function fromFlat(result: FlatResult, sources?: Sources): Columns | null {
  const { functions, function_types: types } = result;
  const values = result.node_values.values;

  if (!functions || !types || !values || values.length === 0) return null;
  const n = values.length;
  const nodes = {
    fn: new Uint32Array(n),
    parent: new Int32Array(n),
    self: new Float64Array(n),
    total: new Float64Array(n),
    inlined: new Uint8Array(n),
    functions: functionsOf(functions, types, sources),
  };
  values.forEach(([fn, parent, self, total], i) => {
    nodes.fn[i] = fn;
    nodes.parent[i] = parent;
    nodes.self[i] = self;
    nodes.total[i] = total;
  });
  for (const node of sources?.inlined_nodes ?? []) nodes.inlined[node] = 1;
  return arrange(nodes);
}

function functionsOf(names: string[], types: string[], sources?: Sources): Functions {
  const languages = languagesOf(names.length, sources);
  const where = sources?.values ?? [];

  return new Functions(
    names.map((name, fn) => inOwnForm(name, languages[fn])),
    names.map((name, fn) => ownKind(name, languages[fn]) ?? frameKind(name, types[fn])),
    names.map((_, fn) => sources?.files[where[fn]?.[0]] ?? ''),
    Uint32Array.from(names, (_, fn) => where[fn]?.[1] ?? 0),
  );
}

function languagesOf(n: number, sources?: Sources): (string | undefined)[] {
  const of = new Array<string | undefined>(n);

  for (const [kind, list] of Object.entries(sources?.languages ?? {}))
    for (const fn of list) of[fn] = kind;
  return of;
}

/** Each cause of waiting has a colour: "[wait: lock]" is of kind "wait: lock". */
function ownKind(name: string, language?: string): string | undefined {
  return language === 'wait' ? name.slice(1, -1) : language;
}

/**
 * "?" of the API is an unresolved address or a marker such as [truncated]. "O" is any leaf of
 * memory; its name says which kind.
 */
function frameKind(name: string, type: string): string {
  const letter =
    type === 'O'
      ? (/^\[([ptklc])\] /.exec(name)?.[1].toUpperCase() ?? (name[0] === '[' ? '?' : 'A'))
      : type;

  if (letter === '?') return /^\[(unknown|\/)/.test(name) ? 'unknown' : 'marker';
  return kinds[letter] ?? 'app';
}
