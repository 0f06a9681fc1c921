// SPDX-License-Identifier: Apache-2.0
// Where the frames of a profile are. It visits only the frames that a picture shows, so that its
// time depends on the pixels and not on the profile.
import { sizes, type Columns } from '../profile/columns';

/** The narrowest frame that is drawn, in pixels. */
const NARROWEST = 0.5;

/**
 * The part of a profile that fills the width: sizes from `from` to `to`, counted from the left edge
 * of the root. It lies in the frame `top`, whose callers fill the width, too.
 */
export interface View {
  readonly top: number;
  readonly from: number;
  readonly to: number;
}

/** What part of a view is visited. Pixels count from the left edge of the picture. */
export interface Part {
  width: number; // of the whole view
  left?: number;
  right?: number;
  first?: number; // depths
  last?: number;
}

/**
 * Takes a frame, or (`rest` > 0) so many frames that are too narrow: `node` is the first of them.
 * `x` and `width` are in pixels, and may reach beyond the picture.
 */
type Visit = (node: number, rest: number, x: number, width: number) => void;

/** The edges of all frames of a profile. A frame is as wide as its size in columns.ts. */
export class Layout {
  readonly size: Float64Array;
  private readonly start: Float64Array; // the left edge of each node
  private readonly inner: Float64Array; // what the children of each node add up to

  constructor(readonly columns: Columns) {
    const { n, parent } = columns;

    this.size = sizes(columns);
    this.start = new Float64Array(n);
    this.inner = new Float64Array(n);
    for (let i = 1; i < n; i++) {
      this.start[i] = this.start[parent[i]] + this.inner[parent[i]];
      this.inner[parent[i]] += this.size[i];
    }
  }

  /** The view in which a frame fills the width. */
  viewOf(node: number): View {
    const from = this.start[node];

    return { top: node, from, to: from + this.size[node] };
  }

  /** The view of a frame and its later siblings. */
  viewOfRest(node: number): View {
    const top = this.columns.parent[node];

    return { top, from: this.start[node], to: this.start[top] + this.inner[top] };
  }

  /** What a frame and its later siblings add up to. */
  rest(node: number): number {
    const { from, to } = this.viewOfRest(node);

    return to - from;
  }

  /** The left edge and the width of a frame in pixels, whether it is in the view or not. */
  place(node: number, view: View, width: number): [number, number] {
    const scale = width / (view.to - view.from);

    return [(this.start[node] - view.from) * scale, this.size[node] * scale];
  }

  /** Visits the frames of a part of a view. Returns the greatest depth of them; -1: none. */
  visit(view: View, part: Part, visit: Visit): number {
    const { width, left = 0, right = width, first = 0, last = Infinity } = part;
    const { parent, depth, end } = this.columns;
    const scale = width / (view.to - view.from);
    let deepest = -1;

    if (!(view.to > view.from) || !(width > 0)) return deepest;
    for (let i = parent[view.top]; i >= 0; i = parent[i])
      if (depth[i] >= first && depth[i] <= last) visit(i, 0, ...this.place(i, view, width));
    for (let i = view.top; i < end[view.top]; ) {
      let rest = 0;
      let x = (this.start[i] - view.from) * scale;
      let w = this.size[i] * scale;

      if (w < NARROWEST && i !== view.top) {
        // so are its later siblings
        rest = end[parent[i]] - i;
        w = this.rest(i) * scale;
      }
      const isSeen = w >= NARROWEST && x + w > left && x <= right;
      if (isSeen) {
        deepest = Math.max(deepest, depth[i]);
        if (depth[i] >= first && depth[i] <= last) visit(i, rest, x, w);
      }
      if (rest || (x > right && i !== view.top)) i = end[parent[i]];
      else if (!isSeen || depth[i] >= last) i = end[i];
      else i++;
    }
    return deepest;
  }

  /** The deepest frame that has both of these in its subtree. */
  common(a: number, b: number): number {
    const { parent, end } = this.columns;

    while (!(a <= b && b < end[a])) a = parent[a];
    return a;
  }

  /** The first child for which `is` is true, the greatest child first; -1: there is none. */
  child(node: number, is: (child: number) => boolean): number {
    const { end } = this.columns;

    for (let i = node + 1; i < end[node]; i = end[i]) if (is(i)) return i;
    return -1;
  }

  /** The next greater (-1) or smaller (1) child of the same parent; -1: there is none. */
  sibling(node: number, way: -1 | 1): number {
    const { parent, end } = this.columns;
    let last = -1;

    if (parent[node] < 0) return -1;
    if (way > 0) return end[node] < end[parent[node]] ? end[node] : -1;
    this.child(parent[node], (i) => i === node || ((last = i), false));
    return last;
  }
}
