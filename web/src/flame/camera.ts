// SPDX-License-Identifier: Apache-2.0
// The part of a profile that is in view, and its way to another part.
import type { Layout, View } from './layout';

const ZOOM_MS = 200;

export class Camera {
  /** What is in view now. */
  view: View;
  /** What will be in view once the camera stands still. */
  target: View;
  private from: View;
  private began = 0; // ms

  constructor(
    private readonly layout: Layout,
    node: number,
  ) {
    this.view = this.target = this.from = layout.viewOf(node);
  }

  get isMoving(): boolean {
    return this.view !== this.target;
  }

  moveTo(target: View, now: number): void {
    const isInstant = matchMedia('(prefers-reduced-motion: reduce)').matches;

    this.from = this.view;
    this.target = target;
    this.began = now;
    if (isInstant) this.view = target;
  }

  /** Takes the view to where it is at a time. */
  advance(now: number): void {
    const at = Math.max(0, (now - this.began) / ZOOM_MS);
    const top = this.layout.common(this.from.top, this.target.top);

    if (!this.isMoving) return;
    this.view = at < 1 ? between(this.from, this.target, top, at * (2 - at)) : this.target;
  }

  /** Whether a frame will be in view. */
  has(node: number): boolean {
    const { end } = this.layout.columns;
    const { top } = this.target;
    const [x, width] = this.layout.place(node, this.target, 1);

    if (node <= top && top < end[node]) return true;
    return top < node && node < end[top] && x + width > 0 && x < 1;
  }
}

/** The view at a point of the way from one view to another: at 0 the one, at 1 the other. */
export function between(one: View, other: View, top: number, at: number): View {
  const width = one.to - one.from;
  const change = other.to - other.from - width;
  // at equal times the width changes by equal factors, about the point that stays where it is
  const now = width * Math.pow((width + change) / width, at);
  const done = change ? (now - width) / change : at;
  const from = one.from + (other.from - one.from) * done;

  return { top, from, to: from + now };
}
