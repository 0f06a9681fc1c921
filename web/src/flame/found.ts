// SPDX-License-Identifier: Apache-2.0
// What a search has found in a profile.
import type { Columns } from '../profile/columns';

/** Whether a function is one that is sought. */
export type Matches = (name: string, kind: string) => boolean;

export class Found {
  /** The sum of the values of the frames found. A frame below another one adds nothing. */
  readonly sum: number = 0;
  private readonly functions: Uint8Array;
  private readonly before: Uint32Array; // how many frames before each node are found

  constructor({ n, fn, end, total, functions }: Columns, matches: Matches) {
    let counted = 0; // up to this node

    this.functions = Uint8Array.from(functions.names, (name, f) =>
      Number(matches(name, functions.kinds[f])),
    );
    this.before = new Uint32Array(n + 1);
    for (let i = 0; i < n; i++) {
      const isFound = this.functions[fn[i]];

      this.before[i + 1] = this.before[i] + isFound;
      if (!isFound || i < counted) continue;
      this.sum += total[i];
      counted = end[i];
    }
  }

  has(fn: number): boolean {
    return this.functions[fn] === 1;
  }

  /** Whether a node of [from, to) is found. */
  within(from: number, to: number): boolean {
    return this.before[to] > this.before[from];
  }
}
