// SPDX-License-Identifier: Apache-2.0
// Names in the form of their language, and short names: without C++ and Rust type arguments, Rust's
// hashes and very long Go type arguments. All of it takes linear time: names may be hostile.

const MAX_GO_ARGUMENTS = 16;
const OPERATOR = /\boperator(?:<=>|<<=|>>=|->\*|<<|>>|<=|>=|->|<|>) ?/y;
const closer: Record<string, string> = { '<': '>', '[': ']', '(': ')', '{': '}' };
const isWord = (c: string | undefined): boolean => c !== undefined && /\w/.test(c);

/** The most characters of a name that the page shows: a template may have 64 KiB. */
const MAX_SHOWN = 1000;
const RIGHT_TO_LEFT =
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const PILED_MARKS = /(\p{M}{2})\p{M}+/gu;

/**
 * A name as the page may show it. A process chooses its names: characters that control the text
 * around them (line ends, right-to-left marks) become U+FFFD, accents do not pile up over other
 * lines, and the end of a very long name is left out.
 */
export function inert(name: string): string {
  const shown = name.length > MAX_SHOWN ? `${name.slice(0, MAX_SHOWN)}…` : name;

  return shown.replace(UNSEEN, '\ufffd').replace(PILED_MARKS, '$1');
}

/** The file of a module: its path without the directories. */
export const fileOf = (module: string): string => module.slice(module.lastIndexOf('/') + 1);

/** An inert name beside other text, which letters that are written from the right do not move. */
export function isolated(name: string): string {
  return RIGHT_TO_LEFT.test(name) ? `\u2068${name}\u2069` : name;
}

/** The API's `java/lang/String::hashCode` as Java writes it; other names stay. */
export function inOwnForm(name: string, language?: string): string {
  return language === 'jvm' ? name.replaceAll('/', '.').replace('::', '.') : name;
}

/** The reverse: a name of Java as the API has it. */
export function inHubForm(name: string, language?: string): string {
  const method = name.lastIndexOf('.');

  if (language !== 'jvm' || method < 0) return name;
  return `${name.slice(0, method).replaceAll('.', '/')}::${name.slice(method + 1)}`;
}

/** `std::vector<int, std::allocator<int> >::push_back` -> `std::vector<…>::push_back`. */
export function shorten(name: string): string {
  const s = name.replace(/::h[0-9a-f]{16}(?=$|[.\s])/, '');
  const ends = pairs(s);
  let out = '';
  let named = -1; // behind operator<: what follows are its arguments

  for (let i = 0; i < s.length; ) {
    const skip = operatorAt(s, i);

    if (skip) {
      out += s.slice(i, i + skip);
      i += skip;
      named = i;
    } else if (ends[i] > i && ((named === i && s[i] === '<') || isArguments(s, i, ends[i]))) {
      out += `${s[i]}…${s[ends[i]]}`;
      i = ends[i] + 1;
    } else {
      out += s[i++];
    }
  }
  return out;
}

/**
 * Arguments follow a name. `<T as Trait>`, `::<impl …>`, `::<lambda(int)>`, `[abi:cxx11]` and
 * `[clone …]` are names.
 */
function isArguments(s: string, open: number, end: number): boolean {
  if (s[open] === '[')
    return isWord(s[open - 1]) && end - open > MAX_GO_ARGUMENTS && !s.startsWith('abi:', open + 1);
  if (s[open] !== '<') return false;
  return (
    isWord(s[open - 1]) ||
    (s.startsWith('::', open - 2) &&
      !s.startsWith('impl ', open + 1) &&
      !s.startsWith('lambda', open + 1))
  );
}

function operatorAt(s: string, i: number): number {
  OPERATOR.lastIndex = i;
  return s[i] === 'o' ? (OPERATOR.exec(s)?.[0].length ?? 0) : 0;
}

/** For each character the place where its bracket closes; 0: nowhere, or it is no bracket. */
function pairs(s: string): Int32Array {
  const ends = new Int32Array(s.length);
  const open: number[] = [];
  const waiting: Record<string, number> = { '>': 0, ']': 0, ')': 0, '}': 0 };

  for (let i = 0; i < s.length; i++) {
    const c = s[i];

    i += Math.max(operatorAt(s, i) - 1, 0);
    if (closer[c]) {
      open.push(i);
      waiting[closer[c]]++;
    } else if (
      waiting[c] &&
      !(c === '>' && (s[i - 1] === '-' || closer[s[open[open.length - 1]]] !== '>'))
    ) {
      for (let top = -1; top < 0 || closer[s[top]] !== c;) {
        top = open.pop()!;
        waiting[closer[s[top]]]--;
        if (closer[s[top]] === c) ends[top] = i;
      }
    }
  }
  return ends;
}
