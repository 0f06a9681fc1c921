// SPDX-License-Identifier: Apache-2.0
// One request, by what was seen of it: its samples on a CPU and its waits become one profile of the
// request, its spans, the ways in which they spent time (on a CPU, waiting for a lock, ...), and
// their stacks. If the duration of the request is known, what is missing is a part of it, too.
import { arrange, Functions, valuesOf, type Columns } from './columns';

/** Microseconds that were spent in one way. */
export interface Spent {
  kind: string; // 'cpu', 'wait: lock', ...
  name: string; // the kind in words
  value: number;
  samples: number; // on a CPU: on which the value is an estimate; else waits, which were measured
  error: number; // one standard error of the value, by the number of samples
}

export interface Span {
  id: string; // '': not known
  value: number;
  ways: Spent[]; // the greatest first
}

export interface Request {
  columns: Columns | null; // null: nothing was seen
  spans: Span[]; // the greatest first
  ways: Spent[]; // of all spans together, the greatest first
  seen: number; // all of it. Threads that worked at the same time count each
  missing: number | null; // of the duration; null: the duration is not known
}

/** `cpu` and `waits`: the request's answers for on-cpu and off-cpu, with its spans as groups. */
export function requestOf(
  cpu: Columns | null,
  waits: Columns | null,
  durationUs: number | null,
): Request {
  const draft = new Draft();

  if (cpu) draft.take(cpu, 'cpu');
  if (waits) draft.take(waits, 'wait: other');
  const spans = [...draft.spans].map(([id, { ways }]) => spanOf(id, ways)).sort(greatestFirst);
  const seen = spans.reduce((sum, { value }) => sum + value, 0);
  const missing = durationUs === null ? null : Math.max(0, durationUs - seen);

  return {
    columns: seen ? draft.columns(missing ?? 0) : null,
    spans,
    ways: together(spans.flatMap(({ ways }) => ways)),
    seen,
    missing,
  };
}

const greatestFirst = (a: { value: number }, b: { value: number }): number => b.value - a.value;

function spanOf(id: string, ways: Map<string, Way>): Span {
  const all = [...ways.values()].map(({ spent }) => withError(spent)).sort(greatestFirst);

  return { id, value: all.reduce((sum, { value }) => sum + value, 0), ways: all };
}

/** The same ways of all spans as one. */
function together(parts: Spent[]): Spent[] {
  const sums = new Map<string, Spent>();

  for (const { kind, name, value, samples } of parts) {
    const sum = sums.get(kind) ?? { kind, name, value: 0, samples: 0, error: 0 };

    sum.value += value;
    sum.samples += samples;
    sums.set(kind, sum);
  }
  return [...sums.values()].map(withError).sort(greatestFirst);
}

/** So many samples came by chance; others as likely would be more or fewer by their square root. */
const withError = (s: Spent): Spent =>
  s.kind === 'cpu' && s.samples ? { ...s, error: s.value / Math.sqrt(s.samples) } : s;

/** Of a span. `node` is its node in the profile, below which the stacks are. */
interface Way {
  node: number;
  spent: Spent;
}

const nameOfWay = (kind: string): string =>
  ({ cpu: 'on a CPU', 'wait: runqueue': 'ready, but no CPU', 'wait: gpu': 'waiting: GPU' })[kind] ??
  kind.replace('wait:', 'waiting:');

/** The hub writes zeros for an id that is not known. */
const idOf = (group: string): string => (/^0*$/.test(group) ? '' : group);

/** The profile while it is put together. A node comes behind its parent. */
class Draft {
  readonly spans = new Map<string, { node: number; ways: Map<string, Way> }>();
  private readonly fn: number[] = [];
  private readonly parent: number[] = [];
  private readonly self: number[] = [];
  private readonly samples: number[] = [];
  private readonly inlined: number[] = [];
  private readonly names: string[] = [];
  private readonly kinds: string[] = [];
  private readonly modules: string[] = [];
  private readonly files: string[] = [];
  private readonly lines: number[] = [];

  constructor() {
    this.level('the request', 'root', -1);
  }

  /** Adds an answer. `otherwise`: the way of stacks that end in no cause of waiting. */
  take(answer: Columns, otherwise: string): void {
    const { n, fn, depth, parent, self, samples, functions } = answer;
    const stacks = new Stacks(this, answer, this.addFunctions(functions));
    let span = '';

    for (let node = 0; node < n; node++) {
      const kind = functions.kinds[fn[node]];
      const isCause = kind.startsWith('wait: ');

      if (depth[node] === 1) span = kind === 'group' ? idOf(functions.names[fn[node]]) : '';
      if (!self[node] && !samples.self[node]) continue;
      const way = this.way(span, isCause ? kind : otherwise);
      const place = stacks.place(isCause ? parent[node] : node, way);
      way.spent.value += self[node];
      way.spent.samples += samples.self[node];
      this.self[place] += self[node];
      this.samples[place] += samples.self[node];
    }
  }

  add(fn: number, parent: number, inlined = 0): number {
    this.fn.push(fn);
    this.parent.push(parent);
    this.self.push(0);
    this.samples.push(0);
    this.inlined.push(inlined);
    return this.fn.length - 1;
  }

  /** The whole, with time that nobody saw. */
  columns(missing: number): Columns {
    if (missing > 0) this.self[this.level('not seen', 'missing', 0)] = missing;
    const parent = Int32Array.from(this.parent);
    return arrange({
      fn: Uint32Array.from(this.fn),
      parent,
      ...valuesOf(Float64Array.from(this.self), parent),
      samples: valuesOf(Float64Array.from(this.samples), parent),
      inlined: Uint8Array.from(this.inlined),
      functions: new Functions(
        this.names, this.kinds, this.modules, this.files, Uint32Array.from(this.lines),
      ),
    });
  }

  private way(id: string, kind: string): Way {
    const span = this.spans.get(id) ?? {
      node: this.level(id ? `span ${id}` : 'span not known', 'group', 0),
      ways: new Map<string, Way>(),
    };
    const name = nameOfWay(kind);
    const way = span.ways.get(kind) ?? {
      node: this.level(name, kind, span.node),
      spent: { kind, name, value: 0, samples: 0, error: 0 },
    };

    this.spans.set(id, span);
    span.ways.set(kind, way);
    return way;
  }

  /** Adds a node that no answer has. */
  private level(name: string, kind: string, parent: number): number {
    return this.add(this.addFunctions(new Functions([name], [kind], [''], [''], NO_LINE)), parent);
  }

  /** Returns the number of the first one. */
  private addFunctions({ names, kinds, modules, files, lines }: Functions): number {
    const first = this.names.length;

    for (let i = 0; i < names.length; i++) {
      this.names.push(names[i]);
      this.kinds.push(kinds[i]);
      this.modules.push(modules[i]);
      this.files.push(files[i]);
      this.lines.push(lines[i]);
    }
    return first;
  }
}

const NO_LINE = new Uint32Array(1);

/** The stacks of an answer, each of which is put below the ways that it is seen in. */
class Stacks {
  private readonly places = new Map<string, Int32Array>(); // by kind of way; 0: not put yet

  constructor(
    private readonly draft: Draft,
    private readonly answer: Columns,
    private readonly firstFunction: number,
  ) {}

  /** The node of the draft for a node below a way. The levels down to the span are the draft's. */
  place(node: number, way: Way): number {
    const { n, depth, parent, fn, inlined } = this.answer;
    const places = this.places.get(way.spent.kind) ?? new Int32Array(n);
    const above: number[] = []; // what is not put yet

    this.places.set(way.spent.kind, places);
    while (depth[node] > 1 && !places[node]) {
      above.push(node);
      node = parent[node];
    }
    let at = depth[node] > 1 ? places[node] : way.node;
    for (const next of above.reverse())
      at = places[next] = this.draft.add(this.firstFunction + fn[next], at, inlined[next]);
    return at;
  }
}
