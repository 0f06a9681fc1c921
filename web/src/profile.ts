// SPDX-License-Identifier: Apache-2.0
// The flat form of ProfileTracing as a tree and a table of functions.
import { inOwnForm, shorten } from './names';

export interface FlatResult {
  functions: string[] | null;
  function_types: string[] | null;
  node_values: { values: [number, number, number, number][] | null };
}

export interface Loss {
  reason: string;
  samples: number;
  time_ns?: number;
}

export interface Summary {
  samples: number;
  profiles?: number;
  estimated?: { share: number; error: number }; // of what happened; one standard error, in the unit
  throttled_us?: number; // off-cpu: that containers were not let run
  finished_percent?: number | null; // samples whose stack is whole
  truncated?: boolean;
  cut_stacks?: number; // whose ends are not there: there were too many functions
  // only if there were too many stacks: the value of a stack is too small by at most that
  short_by?: number;
  losses?: Loss[];
  notes?: string[];
}

/**
 * An addition of podflame to the flat form: where functions are defined, which nodes are inlined,
 * and which functions are of another language than C and its like.
 */
export interface Sources {
  files: string[];
  values: [number, number][];
  inlined_nodes: number[];
  languages?: Record<string, number[]>; // kind -> functions: jvm, python, lua, object, wait
}

export interface Reply {
  OPT_STATUS: string;
  DESCRIPTION: string;
  result: FlatResult;
  unit?: string;
  summary?: Summary;
  sources?: Sources;
}

export interface Node {
  name: string;
  short: string;
  source: string; // "file:line", "" when not known
  inlined: boolean;
  kind: string;
  self: number;
  value: number;
  children: Node[];
}

export interface FunctionRow {
  name: string;
  short: string;
  source: string;
  kind: string;
  self: number;
  total: number;
}

/** null: the answer is empty. */
export function toTree(result: FlatResult, sources?: Sources): Node | null {
  const { functions, function_types: kinds } = result;
  const values = result.node_values.values;

  if (!functions || !kinds || !values || values.length === 0) return null;
  const languages = languagesOf(functions.length, sources);
  const names = functions.map((name, fn) => inOwnForm(name, languages[fn]));
  const short = names.map(shorten);
  const inlined = new Set(sources?.inlined_nodes);
  const nodes = values.map(([fn, , self, total], i): Node => ({
    name: names[fn],
    short: short[fn],
    source: sourceText(fn, sources),
    inlined: inlined.has(i),
    kind: ownKind(functions[fn], languages[fn]) ?? frameKind(functions[fn], kinds[fn]),
    self,
    value: total,
    children: [],
  }));
  values.forEach(([, parent], i) => {
    if (parent >= 0) nodes[parent].children.push(nodes[i]);
  });
  return nodes[0];
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

function sourceText(fn: number, sources?: Sources): string {
  const [file, line] = sources?.values[fn] ?? [-1, 0];

  return file < 0 ? '' : `${sources!.files[file]}${line ? `:${line}` : ''}`;
}

/**
 * "?" of the API is an unresolved address or a marker such as [truncated]. "O" is any leaf of
 * memory; its name says which kind.
 */
function frameKind(name: string, type: string): string {
  const kinds: Record<string, string> = {
    H: 'root',
    P: 'process',
    T: 'process',
    K: 'kernel',
    L: 'library',
    C: 'cuda',
    A: 'app',
  };
  const letter =
    type === 'O'
      ? (/^\[([ptklc])\] /.exec(name)?.[1].toUpperCase() ?? (name[0] === '[' ? '?' : 'A'))
      : type;

  if (letter === '?') return /^\[(unknown|\/)/.test(name) ? 'unknown' : 'marker';
  return kinds[letter] ?? 'app';
}

export const isFunction = ({ kind }: { kind: string }): boolean =>
  kind !== 'process' && kind !== 'root';

/** Self and total of every function. A recursive function counts once in each stack. */
export function functionTable(root: Node): FunctionRow[] {
  const rows = new Map<string, FunctionRow>();
  const open = new Map<string, number>();

  const visit = (node: Node): void => {
    if (isFunction(node)) {
      let row = rows.get(node.name);
      if (!row)
        rows.set(
          node.name,
          (row = {
            name: node.name,
            short: node.short,
            source: node.source,
            kind: node.kind,
            self: 0,
            total: 0,
          }),
        );
      row.self += node.self;
      if (!open.get(node.name)) row.total += node.value;
    }
    open.set(node.name, (open.get(node.name) ?? 0) + 1);
    node.children.forEach(visit);
    open.set(node.name, open.get(node.name)! - 1);
  };
  root.children.forEach(visit);
  return [...rows.values()].sort((a, b) => b.self - a.self || b.total - a.total);
}

export function formatValue(value: number, unit: string): string {
  if (value < 0) return `−${formatValue(-value, unit)}`;
  const steps: [number, string][] =
    unit === 'bytes'
      ? [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]
      : [[3600e6, 'h'], [60e6, 'min'], [1e6, 's'], [1e3, 'ms'], [1, 'µs']];

  for (const [size, name] of steps) if (value >= size) return `${trim(value / size)} ${name}`;
  return `0 ${steps[steps.length - 1][1]}`;
}

function trim(n: number): string {
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}
