// SPDX-License-Identifier: Apache-2.0
// A profile while it is shown: where the camera is in it, what a search has found in it, and the
// colours and words of its frames.
import type { Columns } from '../profile/columns';
import type { Change } from '../profile/difference';
import { inert } from '../profile/names';
import { nodeAt, pathTo } from '../profile/path';
import { Camera } from './camera';
import {
  changeColour,
  colour,
  DARK,
  FOUND,
  kinds,
  LIGHT,
  moduleColour,
  packed,
  REST_FOUND,
  type Colour,
  type Colouring,
} from './colours';
import { Found, type Matches } from './found';
import { Layout, type Part } from './layout';

/** A frame; or, if `rest` > 0, so many frames that are too narrow to draw, `node` the first. */
export interface Frame {
  node: number;
  rest: number;
}

/** How the frames of a difference have changed, and that in words. */
export interface Changes {
  of(node: number): Change;
  text(change: Change): string;
}

export class Scene {
  readonly layout: Layout;
  readonly camera: Camera;
  found: Found | null = null;
  private colouring: Colouring = 'kind';
  private theme = LIGHT;
  private pixels = new Uint32Array(0); // of functions, or of nodes; 0: not made yet
  private readonly labels: { short: string[]; full: string[] } = { short: [], full: [] };

  /** The camera is at the frame of a path, or shows all if the profile does not have it. */
  constructor(
    readonly columns: Columns,
    readonly changes: Changes | null,
    zoomedTo: readonly string[],
    matches: Matches | null,
  ) {
    this.layout = new Layout(columns);
    this.camera = new Camera(this.layout, this.at(zoomedTo) ?? 0);
    this.colourBy('kind', false);
    this.search(matches);
  }

  search(matches: Matches | null): void {
    this.found = matches && new Found(this.columns, matches);
  }

  /** Visits the frames that are in view now. `x` and `width` are as layout.ts gives them. */
  visit(part: Part, visit: (frame: Frame, x: number, width: number) => void): void {
    this.layout.visit(this.camera.view, part, (node, rest, x, width) =>
      visit({ node, rest }, x, width),
    );
  }

  // ---- frames by name ----

  path(node: number): string[] {
    return pathTo(this.columns, node);
  }

  /** The frame at the end of a path; null: the profile does not have it. */
  at(path: readonly string[]): number | null {
    const node = nodeAt(this.columns, path);

    return node < 0 ? null : node;
  }

  // ---- colours ----

  /** Only a difference can be coloured by differences. */
  colourBy(colouring: Colouring, isDark: boolean): void {
    const { n, functions } = this.columns;

    this.colouring = colouring;
    this.theme = isDark ? DARK : LIGHT;
    this.pixels = new Uint32Array(this.isByChange ? n : functions.names.length);
  }

  colour({ node, rest }: Frame): Colour {
    const { fn, end, parent } = this.columns;

    if (rest) return this.found?.within(node, end[parent[node]]) ? REST_FOUND : this.theme.rest;
    if (this.found?.has(fn[node])) return FOUND;
    return node < this.camera.view.top ? this.theme.faded(this.own(node)) : this.own(node);
  }

  get background(): number {
    return packed(this.theme.background);
  }

  private get isByChange(): boolean {
    return this.colouring === 'difference' && this.changes !== null;
  }

  private own(node: number): Colour {
    const { fn, functions } = this.columns;
    const name = functions.names[fn[node]];
    const module = functions.modules[fn[node]];

    if (this.isByChange) return changeColour(this.changes!.of(node));
    if (this.colouring === 'module' && module) return moduleColour(module, name);
    return colour(functions.kinds[fn[node]], name);
  }

  /** The colour as a pixel. Those of most frames are kept. */
  pixel(frame: Frame): number {
    const f = this.columns.fn[frame.node];
    const at = this.isByChange ? frame.node : f;

    if (frame.rest || frame.node < this.camera.view.top || this.found?.has(f))
      return packed(this.colour(frame));
    return (this.pixels[at] ||= packed(this.colour(frame)));
  }

  isHatched({ node, rest }: Frame): boolean {
    const { fn, functions } = this.columns;

    return !rest && kinds[functions.kinds[fn[node]]]?.hatched === true;
  }

  // ---- words ----

  /** What is drawn in a frame, as far as it fits. */
  label({ node, rest }: Frame, isShort: boolean): string {
    const { fn, functions } = this.columns;
    const f = fn[node];

    if (rest) return `${rest.toLocaleString()} smaller`;
    if (isShort) return (this.labels.short[f] ??= inert(functions.short(f)));
    return (this.labels.full[f] ??= inert(functions.names[f]));
  }

  /** "": the profile is no difference. */
  changeText(node: number): string {
    return this.changes ? this.changes.text(this.changes.of(node)) : '';
  }
}
