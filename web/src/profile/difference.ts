// SPDX-License-Identifier: Apache-2.0
// The difference of two selections of one event, "before" and "now", and whether chance explains
// it. docs/page.md tells it to users.
//
// Of n samples that are taken at random, a part with the share s has s·n. This number has the
// variance s·(1 - s)·n (binomial), or s·n (Poisson) if n is not given: for values per second. If
// nothing has changed, a part has the same s in both selections, and the difference has the sum of
// both variances, with the s of both together (the pooled test of two proportions). So a part that
// has no samples in one of them has an error, too.
import { arrange, type Columns, type Measured } from './columns';
import { isSnapshot } from './values';

/**
 * A difference is no noise if it is more than so many standard errors. The usual 1.96 is for one
 * test. Here are thousands, and it would mark one of 20 parts that have not changed; 3, the rule of
 * control charts (W. Shewhart, 1931), marks one of 370.
 */
const NOISE_ERRORS = 3;

/** What one selection has of a part of the profile: of a node, of a function, of a pod. */
export interface Amount {
  value: number;
  samples: number;
}

/** Of a part: shares of the whole of each selection (from 0 to 1), values per second, or values. */
export interface Change {
  now: number;
  before: number;
  /** One standard error of now - before; null: not known. */
  error: number | null;
  /** Chance explains the difference. */
  isNoise: boolean;
}

export interface Terms {
  by: 'share' | 'second' | 'value';
  /**
   * What is known of errors. `known`: every sample of a part stands for the same value, so their
   * number says the error. `least`: samples differ, and by how much is not stored; the error is as
   * if they did not, so it is at least that. `none`: nothing is known.
   */
  errors: 'known' | 'least' | 'none';
  now: Side;
  before: Side;
}

interface Side {
  seconds: number;
  /** One standard error of the whole, if the hub estimates it. */
  error?: number;
}

/** How two selections of an event are compared. */
export function termsOf(event: string, perSecond: boolean, now: Side, before: Side): Terms {
  // the same memory is in both snapshots, so their errors are not those of two samples
  if (isSnapshot(event)) return { by: 'value', errors: 'none', now, before };
  return {
    by: perSecond ? 'second' : 'share',
    errors: event === 'on-cpu' ? 'known' : 'least',
    now,
    before,
  };
}

/** A property of each selection. */
interface Both {
  now: number;
  before: number;
}

/** Parts of two selections, of which only the wholes are known. */
export class Comparison {
  /** The value of each selection. */
  readonly wholes: Both;
  /** By it a value of `before` is as if both selections were equally large. */
  readonly scale: number;
  private readonly size: number; // of each selection, when `before` is scaled
  private readonly all: { now: Amount; before: Amount }; // `before` is scaled
  private readonly dispersion: Both;

  constructor(
    all: { now: Amount; before: Amount },
    readonly terms: Terms,
  ) {
    const { by, now, before } = terms;

    this.wholes = { now: all.now.value, before: all.before.value };
    const sizes = {
      share: this.wholes,
      second: { now: now.seconds, before: before.seconds },
      value: { now: 1, before: 1 },
    }[by];
    this.size = sizes.now || sizes.before;
    this.scale = sizes.now && sizes.before ? sizes.now / sizes.before : 1;
    this.all = {
      now: all.now,
      before: { value: all.before.value * this.scale, samples: all.before.samples },
    };
    this.dispersion = {
      now: dispersion(all.now, now.error),
      before: dispersion(all.before, before.error),
    };
  }

  /** A selection that has nothing has no shares. */
  get isComparable(): boolean {
    return this.terms.by !== 'share' || (this.wholes.now > 0 && this.wholes.before > 0);
  }

  /** How a part has changed that has so much; what it had before is scaled. */
  of(now: Amount, before: Amount): Change {
    const change = { now: now.value / this.size, before: before.value / this.size };
    const difference = Math.abs(change.now - change.before);

    if (this.terms.errors === 'none') return { ...change, error: null, isNoise: !difference };
    if (!this.isComparable) return { ...change, error: null, isNoise: true };
    const own = this.steps(now, before);
    const error = this.error(change, own);
    const half = (own.now + own.before) / 2; // numbers of samples are whole (Yates's correction)

    return { ...change, error, isNoise: difference - half <= NOISE_ERRORS * error };
  }

  private error({ now, before }: Both, own: Both): number {
    const all = this.steps(this.all.now, this.all.before);
    // the selection with the smaller steps says more about what both have in common
    const pooled = (now * own.before + before * own.now) / (own.now + own.before) || 0;
    const rest = this.terms.by === 'share' ? Math.max(0, 1 - pooled) : 1;
    const step = rest * (own.now + own.before) + (1 - rest) * (all.now + all.before);

    return Math.sqrt(pooled * rest * step);
  }

  /** What one sample of a part adds to it. If a selection has none, it would be as in the other. */
  private steps(now: Amount, before: Amount): Both {
    const step = ({ value, samples }: Amount, spread: number): number =>
      samples ? (spread * value) / samples / this.size : 0;
    const own = {
      now: step(now, this.dispersion.now),
      before: step(before, this.dispersion.before),
    };

    return {
      now: own.now || own.before / this.scale,
      before: own.before || own.now * this.scale,
    };
  }
}

export class Difference extends Comparison {
  /** The profile in which `before` has as many values as if both selections were equally large. */
  readonly columns: Columns;

  /** Of a profile with `before`. */
  constructor(measured: Columns, terms: Terms) {
    super({ now: amountOf(measured), before: amountOf(measured.before!) }, terms);
    this.columns = this.scale === 1 ? measured : withBefore(measured, this.scale);
  }

  /** How a node of `columns`, or of what was made from it, has changed. */
  ofNode({ total, samples, before }: Columns, node: number): Change {
    return this.of(
      { value: total[node], samples: samples.total[node] },
      { value: before!.total[node], samples: before!.samples.total[node] },
    );
  }
}

const amountOf = ({ total, samples }: Measured): Amount => ({
  value: total[0],
  samples: samples.total[0],
});

function withBefore(columns: Columns, scale: number): Columns {
  const { self, total, samples } = columns.before!;
  const before = {
    self: self.map((v) => v * scale),
    total: total.map((v) => v * scale),
    samples,
  };

  return arrange({ ...columns, before });
}

/** How many times greater the variance of the whole is, by the hub's estimate, than of so many. */
function dispersion({ value, samples }: Amount, error = 0): number {
  const ofSamples = value ** 2 / samples;

  return Math.max(1, error ** 2 / ofSamples || 1);
}
