// SPDX-License-Identifier: Apache-2.0
// The part of d3-flame-graph's interface that the page uses.
declare module 'd3-flame-graph' {
  export interface Cell<T> {
    data: T;
    value: number;
    x0: number;
    x1: number;
    highlight?: boolean;
    parent: Cell<T> | null;
    children?: Cell<T>[];
  }
  export interface FlameGraph<T> {
    (selection: unknown): void;
    width(px: number): this;
    cellHeight(px: number): this;
    minFrameSize(px: number): this;
    transitionDuration(ms: number): this;
    inverted(on: boolean): this;
    sort(on: boolean): this;
    selfValue(on: boolean): this;
    title(text: string): this;
    tooltip(on: boolean): this;
    getName(fn: (d: Cell<T>) => string): this;
    setLabelHandler(fn: (d: Cell<T>) => string): this;
    setColorMapper(fn: (d: Cell<T>, original: string) => string): this;
    onClick(fn: (d: Cell<T>) => void): this;
    onHover(fn: (d: Cell<T>) => void): this;
    update(): void;
    zoomTo(d: Cell<T>): void;
    resetZoom(): void;
    destroy(): void;
  }
  export default function flamegraph<T>(): FlameGraph<T>;
}
declare module '*.css';
