// SPDX-License-Identifier: Apache-2.0
// The address: what is chosen, as the text behind its #. What is as it is by default is not in it,
// and what is no choice of the page's has no effect.
import type { FunctionId } from '../profile/folds';
import { isSnapshot } from '../profile/values';
import { and, parseFilter, printFilter, type Condition, type Filter } from './filter';
import { withLeak } from './leak';
import { chosenValue } from './narrow';
import { defaults, type State, type Times, type ViewName } from './state';
import { isStored, PROCESS } from './tags';
import { intervalOf, parseLast, parseTime, utc } from './times';

type Words = URLSearchParams;

/** How some members of the state are written. */
interface Part {
  parse: (words: Words, now: number) => Partial<State>;
  print: (words: Words, state: State) => void;
}

type MembersOf<T> = { [K in keyof State]: State[K] extends T ? K : never }[keyof State];

function text(key: string, member: MembersOf<string>, allowed?: readonly string[]): Part {
  return {
    parse: (words) => {
      const value = words.get(key);

      return value && (!allowed || allowed.includes(value)) ? { [member]: value } : {};
    },
    print: (words, state) => {
      if (state[member] !== defaults[member]) words.set(key, state[member]);
    },
  };
}

function flag(key: string, member: MembersOf<boolean>): Part {
  return {
    parse: (words) => (words.get(key) === '1' ? { [member]: true } : {}),
    print: (words, state) => {
      if (state[member]) words.set(key, '1');
    },
  };
}

function list(key: string, member: 'focus' | 'zoom'): Part {
  return {
    parse: (words) => ({ [member]: words.getAll(key) }),
    print: (words, state) => state[member].forEach((value) => words.append(key, value)),
  };
}

// ---- times ----

function parseTimes(words: Words, prefix: string, now: number): Times | null {
  const last = parseLast(words.get(`${prefix}range`));
  const [from, to] = ['from', 'to'].map((key) => parseTime(words.get(prefix + key)));

  if (last !== null) return { last };
  if (from === null && to === null) return null;
  return { from: from ?? now - 900, to: to ?? now };
}

function printTimes(words: Words, prefix: string, times: Times): void {
  if ('last' in times) return words.set(`${prefix}range`, `${times.last}`);
  words.set(`${prefix}from`, utc(times.from));
  words.set(`${prefix}to`, utc(times.to));
}

const times: Part = {
  parse: (words, now) => ({ times: parseTimes(words, '', now) ?? defaults.times }),
  print: (words, { times: all }) => {
    if (!('last' in all && 'last' in defaults.times && all.last === defaults.times.last))
      printTimes(words, '', all);
  },
};

// ---- filter ----

/** `tag=value` for conditions that are so simple, `filter=TEXT` for the others. */
const filter: Part = {
  parse: (words) => {
    const simple: Condition[] = [...words]
      .filter(([tag, value]) => isPlain(tag) && value)
      .map(([tag, value]) => ({ tag, op: '=', values: [value] }));
    const more = parseFilter(words.get('filter') ?? '');

    return {
      filter: 'text' in more ? and(more, simple) : and({ conditions: simple }, more.conditions),
    };
  },
  print: (words, state) => {
    const rest = printFilter(withoutSimple(state.filter, words));

    if (rest) words.set('filter', rest);
  },
};

/** The event and the process are no part of the filter. */
const isPlain = (tag: string): boolean => isStored(tag) && tag !== PROCESS;

/** Writes the simple conditions, and returns the others. */
function withoutSimple(all: Filter, words: Words): Filter {
  if ('text' in all) return all;
  return {
    conditions: all.conditions.filter(({ tag, op, values: [value] }) => {
      if (op !== '=' || !value || !isPlain(tag) || words.has(tag)) return true;
      words.set(tag, value);
      return false;
    }),
  };
}

// ---- the other selection ----

/** What it has in common with the first one is not in the address. */
const compare: Part = {
  parse: (words, now) => {
    const other = parseTimes(words, 'before_', now);
    const process = words.get('before_app_service') ?? words.get('app_service') ?? '';
    const own = words.get('before_filter');

    if (!other) return {};
    return {
      compare: {
        times: other,
        process,
        filter: own === null ? filter.parse(words, now).filter! : parseFilter(own),
      },
    };
  },
  print: (words, state) => {
    const other = state.compare;
    const own = other && printFilter(other.filter);

    if (!other) return;
    printTimes(words, 'before_', other.times);
    if (other.process !== state.process) words.set('before_app_service', other.process);
    if (own !== printFilter(state.filter)) words.set('before_filter', own!);
  },
};

/** The leak view in addresses of earlier versions. */
function ofGrowth(words: Words, state: State, now: number): Partial<State> {
  const [start, end] = intervalOf(state.times, now);
  const from = parseTime(words.get('grown_from')) ?? start;
  const to = parseTime(words.get('grown_to')) ?? end;

  return words.has('growth') && isSnapshot(state.event) ? withLeak(state, [from, to]) : {};
}

// ---- functions ----

const functionsOf = (words: Words, key: string): FunctionId[] => {
  const kinds = words.getAll(`${key}_kind`);

  return words.getAll(key).map((name, i) => ({ name, kind: kinds[i] ?? '' }));
};

function printFunction(words: Words, key: string, { name, kind }: FunctionId): void {
  words.append(key, name);
  words.append(`${key}_kind`, kind);
}

const fn: Part = {
  parse: (words) => ({ fn: functionsOf(words, 'function')[0] ?? null }),
  print: (words, state) => state.fn && printFunction(words, 'function', state.fn),
};

const functions = (key: string, member: 'hidden' | 'without'): Part => ({
  parse: (words) => ({ [member]: functionsOf(words, key) }),
  print: (words, state) => state[member].forEach((f) => printFunction(words, key, f)),
});

// ---- the rest ----

const threads = ['pools', 'each', 'none'] as const;
const folds = ['recursion', 'libraries', 'runtimes'] as const;

const fold: Part = {
  parse: (words) => {
    const chosen = words.get('fold')?.split(',') ?? [];
    const of = threads.find((name) => name === words.get('threads'));

    return {
      fold: {
        threads: of ?? defaults.fold.threads,
        recursion: chosen.includes('recursion'),
        libraries: chosen.includes('libraries'),
        runtimes: chosen.includes('runtimes'),
      },
    };
  },
  print: (words, state) => {
    const chosen = folds.filter((name) => state.fold[name]);

    if (chosen.length) words.set('fold', chosen.join());
    if (state.fold.threads !== defaults.fold.threads) words.set('threads', state.fold.threads);
  },
};

const columns = ['self', 'total', 'difference', 'name'] as const;

const sort: Part = {
  parse: (words) => ({
    sort: {
      column: columns.find((name) => name === words.get('sort')) ?? defaults.sort.column,
      descending: !words.has('ascending'),
    },
  }),
  print: (words, { sort: { column, descending } }) => {
    if (column !== defaults.sort.column) words.set('sort', column);
    if (!descending) words.set('ascending', '1');
  },
};

const durationUs: Part = {
  parse: (words) => {
    const us = Number(words.get('duration_us'));

    return { durationUs: us > 0 && Number.isFinite(us) ? us : null };
  },
  print: (words, state) => state.durationUs && words.set('duration_us', `${state.durationUs}`),
};

const parts: Part[] = [
  text('profile_event_type', 'event'),
  times,
  text('app_service', 'process'),
  filter,
  compare,
  flag('grown', 'grown'),
  text('view', 'view', ['graph', 'sandwich', 'table', 'breakdown', 'request']),
  text('by', 'by'),
  fn,
  fold,
  functions('hide', 'hidden'),
  functions('without', 'without'),
  flag('no_idle', 'withoutIdle'),
  list('focus', 'focus'),
  list('zoom', 'zoom'),
  flag('lines', 'byLine'),
  flag('starts', 'byStart'),
  text('colours', 'colours', ['kind', 'module', 'difference']),
  text('per', 'per', ['all', 'second', 'cpu-second']),
  text('search', 'search'),
  flag('upward', 'upward'),
  flag('short', 'short'),
  sort,
  durationUs,
];

/** Of an address that names none: the link of a tracing system shows its request. */
const usualView = (state: State): ViewName =>
  state.durationUs !== null && chosenValue(state, 'trace_id') ? 'request' : defaults.view;

/** The state of an address, of its text behind the #. */
export function parse(hash: string, now: number): State {
  const words = new URLSearchParams(hash.replace(/^#/, ''));
  const state = { ...defaults };

  for (const part of parts) Object.assign(state, part.parse(words, now));
  if (!words.has('view')) state.view = usualView(state);
  return { ...state, ...ofGrowth(words, state, now) };
}

/** The text behind the # of the address of a state. */
export function print(state: State): string {
  const words = new URLSearchParams();

  for (const part of parts) part.print(words, state);
  if (!words.has('view') && state.view !== usualView(state)) words.set('view', state.view);
  return words.toString();
}
