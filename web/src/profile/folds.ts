// SPDX-License-Identifier: Apache-2.0
// What becomes of the functions of a profile if threads, libraries and runtimes are folded, and if
// functions are hidden. transform.ts applies it to the frames.
import { isFunction, type Functions } from './columns';
import { fileOf } from './names';

/** A function, whatever its module. */
export interface FunctionId {
  name: string;
  kind: string; // docs/api.md has all kinds
}

/** The same text for the same function only. */
export const keyOf = ({ name, kind }: FunctionId): string => `${kind}\n${name}`;

export interface Fold {
  threads: 'pools' | 'each' | 'none'; // pools: exec-17 is one of exec-N
  recursion: boolean;
  libraries: boolean;
  runtimes: boolean;
}

/** The frames of such a function leave, and their callees move up. */
export const GONE = -1;

interface Folded {
  functions: Functions; // those of the profile, then new ones
  to: Int32Array; // of each function of the profile: what it becomes, or GONE
  joins: Uint8Array; // 1: a frame of this function below another one of it is a part of that
}

/** A folded function, or null: these rows say nothing about a function. */
type Row = (functions: Functions, fn: number) => FunctionId | null;

interface Runtime {
  name: string;
  file?: RegExp; // of the module
  fn?: RegExp;
}

/** Native code that runs the program's functions. A row needs one of its expressions. */
const runtimes: Runtime[] = [
  { name: '[Java runtime]', file: /^lib(jvm|jli|java|j9\w*)\.so/ },
  { name: '[Python runtime]', file: /^(libpython.*\.so.*|python[\d.]*)$/ },
  { name: '[Lua runtime]', file: /^(liblua.*\.so.*|lua(jit)?[\d.-]*)$/ },
  { name: '[Node.js runtime]', file: /^(libnode\.so.*|node(js)?)$/ },
  { name: '[.NET runtime]', file: /^lib(coreclr|clr\w*|mono\w*)\b.*\.so/ },
  { name: '[Ruby runtime]', file: /^(libruby.*\.so.*|ruby[\d.]*)$/ },
  { name: '[PHP runtime]', file: /^(libphp.*\.so.*|php(-fpm|-cgi)?[\d.]*)$/ },
  { name: '[Erlang runtime]', file: /^beam(\.smp)?$/ },
  { name: '[Go runtime]', fn: /^(runtime\.|runtime\/internal\/|internal\/runtime\/)/ },
];
const native = ['app', 'library', 'unnamed'];

const runtimeOf: Row = ({ names, kinds, modules }, fn) => {
  const file = fileOf(modules[fn]);

  if (!native.includes(kinds[fn])) return null;
  // stubs of the JVM, built-in functions of Node.js and .NET: they lie in no file
  if (kinds[fn] === 'library' && !file) return { name: '[runtime stubs]', kind: 'library' };
  const runtime = runtimes.find((r) => (r.file ? r.file.test(file) : r.fn!.test(names[fn])));
  return runtime ? { name: runtime.name, kind: 'library' } : null;
};

const libraryOf: Row = ({ kinds, modules }, fn) => {
  const file = fileOf(modules[fn]);
  const isNative = native.includes(kinds[fn]) || kinds[fn] === 'cuda';

  if (!isNative || !file.includes('.so')) return null;
  return { name: `[${file}]`, kind: kinds[fn] === 'cuda' ? 'cuda' : 'library' };
};

/** Threads whose names differ only in their numbers. A thread that is the only one is no pool. */
function poolsOf({ names, kinds }: Functions): Row {
  const poolName = (fn: number): string => names[fn].replace(/\d+/g, 'N');
  const members = new Map<string, number>();

  kinds.forEach((kind, fn) => {
    if (kind === 'thread') members.set(poolName(fn), (members.get(poolName(fn)) ?? 0) + 1);
  });
  return (_, fn) =>
    kinds[fn] === 'thread' && members.get(poolName(fn))! > 1
      ? { name: poolName(fn), kind: 'thread' }
      : null;
}

/** Adds the functions that others are folded into, each once. */
class Growing {
  private readonly added: (FunctionId & { module: string })[] = [];
  private readonly known = new Map<string, number>();

  constructor(private readonly of: Functions) {}

  place({ name, kind }: FunctionId, module: string): number {
    const key = `${kind}\n${module}\n${name}`;
    let place = this.known.get(key);

    if (place === undefined) {
      place = this.of.names.length + this.added.push({ name, kind, module }) - 1;
      this.known.set(key, place);
    }
    return place;
  }

  functions(): Functions {
    return this.added.length ? this.of.with(this.added) : this.of;
  }
}

export function foldFunctions(of: Functions, fold: Fold, hidden: readonly FunctionId[]): Folded {
  const growing = new Growing(of);
  const pools = poolsOf(of);
  const to = Int32Array.from(of.names, (_, fn) => {
    const pool = fold.threads === 'pools' && pools(of, fn);
    const runtime = fold.runtimes && runtimeOf(of, fn);
    const library = !runtime && fold.libraries && libraryOf(of, fn);

    if (library) return growing.place(library, of.modules[fn]);
    return pool || runtime ? growing.place((pool || runtime) as FunctionId, '') : fn;
  });
  const functions = growing.functions();
  const isGone = goneOf(functions, fold, hidden);

  return {
    functions,
    to: to.map((fn) => (isGone(fn) ? GONE : fn)),
    joins: Uint8Array.from(functions.kinds, (kind, fn) =>
      Number(isFunction(kind) && (fold.recursion || fn >= of.names.length)),
    ),
  };
}

/** Whether a function's frames leave. The root stays. */
function goneOf({ names, kinds }: Functions, fold: Fold, hidden: readonly FunctionId[]) {
  const isHidden = new Set(hidden.map(keyOf));
  // of a host's processes, whose threads have no stacks, the processes stay
  const threads = kinds.some(isFunction) ? ['thread', 'process'] : ['thread'];

  return (fn: number): boolean =>
    kinds[fn] !== 'root' &&
    ((fold.threads === 'none' && threads.includes(kinds[fn])) ||
      isHidden.has(keyOf({ name: names[fn], kind: kinds[fn] })));
}
