// SPDX-License-Identifier: Apache-2.0
// The flame graph: README.md says how it is used. This file owns its elements, and what is shown,
// selected and hovered. scene.ts is the profile that is shown, layout.ts says where its frames are,
// paint.ts draws them, reader.ts is for screen readers, and input.ts is what the user does.
import type { Columns } from '../profile/columns';
import type { Camera } from './camera';
import { css, packed, textOn, type Colouring } from './colours';
import './flame.css';
import type { Matches } from './found';
import { listen } from './input';
import type { View } from './layout';
import type { Asked } from './menu';
import { defaults, type Options } from './options';
import { Picture } from './paint';
import { Reader } from './reader';
import { Scene, type Changes, type Frame } from './scene';
import { textOf } from './words';

const OVERSCAN_PX = 400; // what is drawn above and below the window, so that it can be scrolled

export type { Changes, Colouring, Frame, Options };

/** A frame that is shown. Lengths are in CSS pixels from the left upper corner of the graph. */
export interface Box extends Frame {
  name: string;
  x: number;
  y: number;
  width: number;
  height: number;
  colour: string; // of CSS
  textColour: string;
  hatched: boolean;
}

export class FlameGraph {
  private options = defaults;
  private scene: Scene | null = null;
  private rows = 0;
  private selected: number | null = null;
  private hovered: number | null = null;
  private zoomedTo: readonly string[] = [];
  private matches: Matches | null = null;
  private drawing = 0; // the request of the next animation frame

  private readonly frames = document.createElement('div');
  private readonly canvas = document.createElement('canvas');
  private readonly selectedMark = document.createElement('div');
  private readonly hoveredMark = document.createElement('div');
  private readonly picture = new Picture(this.canvas);
  private readonly reader = new Reader();
  private readonly end = new AbortController();

  constructor(
    private readonly element: HTMLElement & { flame?: FlameGraph },
    options: Partial<Options> = {},
  ) {
    this.frames.className = 'flame-frames';
    this.frames.tabIndex = 0;
    this.frames.role = 'application';
    this.selectedMark.className = 'flame-mark flame-selected';
    this.hoveredMark.className = 'flame-mark flame-hovered';
    this.frames.append(this.canvas, this.hoveredMark, this.selectedMark);
    element.classList.add('flame');
    element.append(this.frames, this.reader.element);
    element.flame = this;
    listen(this, this.frames, this.end.signal);
    this.watch();
    this.set(options);
    this.show(null);
  }

  set(options: Partial<Options>): void {
    this.options = { ...this.options, ...options };
    this.frames.ariaLabel =
      `${this.options.label}: the arrow keys walk the frames, Enter zooms in, Escape zooms out`;
    this.scene?.colourBy(this.options.colours, this.options.dark);
    this.draw();
  }

  /**
   * Shows a profile; null: none. With `changes`, a difference. It is zoomed to the frame of a path,
   * if it has one. The selection stays at the frame of the same stack, if the profile has it. A
   * search goes on in it.
   */
  show(
    columns: Columns | null,
    changes: Changes | null = null,
    zoomTo: readonly string[] = this.zoomedTo,
  ): void {
    const selected = this.selected !== null ? this.scene!.path(this.selected) : null;

    this.zoomedTo = zoomTo;
    this.scene = columns && new Scene(columns, changes, zoomTo, this.matches);
    this.scene?.colourBy(this.options.colours, this.options.dark);
    this.frames.hidden = !columns;
    this.hovered = this.selected = null;
    this.reader.clear();
    if (!this.scene) return;
    this.selected = selected && this.scene.at(selected);
    this.fitRows();
    this.draw();
  }

  /** Zooms to a frame; 0: shows all. A frame without a size cannot fill the width. */
  zoom(node: number): void {
    if (!this.scene?.layout.size[node]) return;
    this.move(this.scene.layout.viewOf(node));
  }

  /** Zooms to a frame and its later siblings. */
  zoomRest(node: number): void {
    if (this.scene) this.move(this.scene.layout.viewOfRest(node));
  }

  /** Zooms to the frame of a path, or shows all if the profile does not have it. */
  zoomTo(path: readonly string[]): void {
    const node = this.scene?.at(path) ?? 0;

    if (node !== this.scene?.camera.target.top) this.zoom(node);
  }

  /** Where a frame is, as pathTo() of profile/path.ts gives it. */
  path(node: number): string[] {
    return this.scene?.path(node) ?? [];
  }

  /** Selects a frame, zooms out as far as it takes to see it, and lets a screen reader say it. */
  select(node: number): void {
    if (!this.scene) return;
    const { camera, layout } = this.scene;

    this.selected = node;
    if (!camera.has(node)) this.zoom(layout.common(node, camera.target.top));
    this.placeMarks();
    this.reader.tell(this.scene, node, this.options);
    this.options.onSelect(node);
  }

  /** Marks the frames whose function matches; null: none. */
  search(matches: Matches | null): void {
    this.matches = matches;
    this.scene?.search(matches);
    this.draw();
  }

  /** The sum of the values of what is marked. A frame below another one adds nothing. */
  foundSum(): number {
    return this.scene?.found?.sum ?? 0;
  }

  /** A frame in words: its full name, where it is defined, its value and shares. */
  text(frame: Frame): string {
    return this.scene ? textOf(this.scene, frame, this.options) : '';
  }

  /** What is shown, of all rows, whether they are scrolled into the window or not. */
  boxes(): Box[] {
    const boxes: Box[] = [];
    const width = this.element.clientWidth;
    const height = Picture.rowHeight();

    this.scene?.visit({ width }, (frame, x, w) => {
      const left = Math.max(0, x);
      const colour = this.scene!.colour(frame);

      boxes.push({
        ...frame,
        name: this.scene!.label(frame, this.options.short),
        x: left,
        y: this.rowOf(frame.node) * height,
        width: Math.min(width, x + w) - left,
        height,
        colour: css(colour),
        textColour: textOn(packed(colour)),
        hatched: this.scene!.isHatched(frame),
      });
    });
    return boxes;
  }

  /** The frame at a point of the graph; null: there is none. */
  frameAt(x: number, y: number): Frame | null {
    const row = Math.floor(y / Picture.rowHeight());
    const depth = this.options.upward ? this.rows - 1 - row : row;
    const part = { width: this.element.clientWidth, left: x, right: x, first: depth, last: depth };
    let found: Frame | null = null;

    this.scene?.visit(part, (frame) => (found = frame));
    return found;
  }

  /** Removes all that the graph has added to its element and to the window. */
  destroy(): void {
    this.end.abort();
    cancelAnimationFrame(this.drawing);
    this.frames.remove();
    this.reader.element.remove();
    this.element.classList.remove('flame');
    delete this.element.flame;
  }

  // ---- what input.ts calls ----

  hover(frame: Frame | null): void {
    this.hovered = frame && !frame.rest ? frame.node : null;
    this.placeMarks();
    this.options.onHover(frame);
  }

  /** A click: it zooms. */
  press({ node, rest }: Frame): void {
    if (rest) return this.zoomRest(node);
    this.select(node);
    this.zoom(node);
  }

  /**
   * Asks for the menu of a frame; null: of the selected one. Returns whether there is one.
   */
  openMenu(frame: Frame | null, asked: Asked): boolean {
    const { onMenu } = this.options;
    const node = asked ? frame?.node : this.selected;

    if (!onMenu || frame?.rest || typeof node !== 'number') return false;
    if (asked) this.select(node);
    const { left, bottom } = this.selectedMark.getBoundingClientRect();
    onMenu(node, asked ?? { x: left, y: bottom });
    return true;
  }

  zoomToSelected(): void {
    if (this.selected !== null) this.zoom(this.selected);
  }

  /** Selects the next frame in a direction, if there is one. Up and down are as on the screen. */
  walk(key: 'ArrowUp' | 'ArrowDown' | 'ArrowLeft' | 'ArrowRight'): void {
    if (!this.scene) return;
    const { camera, columns, layout } = this.scene;
    const at = this.selected;
    const callee = this.options.upward ? 'ArrowUp' : 'ArrowDown';
    let next: number;

    if (at === null) next = camera.target.top;
    else if (key === 'ArrowLeft') next = layout.sibling(at, -1);
    else if (key === 'ArrowRight') next = layout.sibling(at, 1);
    else if (key === callee) next = layout.child(at, () => true);
    else next = columns.parent[at];
    if (next < 0) return;
    this.select(next);
    this.selectedMark.scrollIntoView({ block: 'nearest' });
  }

  // ---- the view ----

  private move(to: View): void {
    this.zoomedTo = this.scene!.path(to.top);
    this.scene!.camera.moveTo(to, performance.now());
    this.fitRows();
    this.draw();
    this.options.onZoom(to.top);
  }

  /** Makes room for the rows that will be in view, and for those that are. */
  private fitRows(): void {
    const { camera, layout } = this.scene!;
    const rows = 1 + layout.visit(camera.target, { width: this.element.clientWidth }, () => {});

    this.rows = camera.isMoving ? Math.max(this.rows, rows) : rows;
    this.frames.style.height = `${this.rows * Picture.rowHeight()}px`;
  }

  /** Takes the camera to where it is at a time. */
  private advance(camera: Camera, now: number): void {
    if (!camera.isMoving) return;
    camera.advance(now);
    if (camera.isMoving) this.draw();
    else this.fitRows();
  }

  /** The row of a frame on the screen, from the top. */
  private rowOf(node: number): number {
    const depth = this.scene!.columns.depth[node];

    return this.options.upward ? this.rows - 1 - depth : depth;
  }

  // ---- drawing ----

  /** Asks for a picture in the next animation frame. */
  private draw(): void {
    if (!this.drawing) this.drawing = requestAnimationFrame((now) => this.paint(now));
  }

  private paint(now: number): void {
    const { scene } = this;
    const width = this.element.clientWidth;

    this.drawing = 0;
    if (!scene || !width) return;
    this.advance(scene.camera, now);
    const [first, end] = this.rowsInWindow();
    const depths = this.options.upward
      ? { first: this.rows - end, last: this.rows - 1 - first }
      : { first, last: end - 1 };
    this.picture.begin(width, end - first, scene.background);
    scene.visit({ width, ...depths }, (frame, x, w) =>
      this.picture.frame(
        x,
        w,
        this.rowOf(frame.node) - first,
        scene.pixel(frame),
        () => scene.label(frame, this.options.short),
        scene.isHatched(frame),
      ),
    );
    this.picture.end();
    this.canvas.style.top = `${first * Picture.rowHeight()}px`;
    this.placeMarks();
  }

  /** The rows that are in the window or near it. */
  private rowsInWindow(): [first: number, end: number] {
    const height = Picture.rowHeight();
    const { top } = this.frames.getBoundingClientRect();
    const row = (y: number): number => Math.min(this.rows, Math.max(0, Math.floor(y / height)));

    return [row(-top - OVERSCAN_PX), row(innerHeight - top + OVERSCAN_PX + height)];
  }

  private placeMarks(): void {
    this.placeMark(this.selectedMark, this.selected);
    this.placeMark(this.hoveredMark, this.hovered);
  }

  private placeMark(mark: HTMLElement, node: number | null): void {
    mark.hidden = node === null || !this.scene?.camera.has(node);
    if (mark.hidden) return;
    const { camera, layout } = this.scene!;
    const width = this.element.clientWidth;
    const [x, w] = layout.place(node!, camera.view, width);
    const left = Math.min(Math.max(0, x), width);
    const height = Picture.rowHeight();

    mark.style.left = `${left}px`;
    mark.style.width = `${Math.max(0, Math.min(width, x + w) - left)}px`;
    mark.style.top = `${this.rowOf(node!) * height}px`;
    mark.style.height = `${height}px`;
  }

  /** Draws again when the window becomes wider or narrower, or is scrolled. */
  private watch(): void {
    let width = 0;
    const resized = new ResizeObserver(() => {
      if (this.element.clientWidth === width || !this.scene) return;
      width = this.element.clientWidth;
      this.fitRows();
      this.draw();
    });

    resized.observe(this.element);
    this.end.signal.addEventListener('abort', () => resized.disconnect());
    for (const event of ['scroll', 'resize'])
      addEventListener(event, () => this.draw(), {
        capture: true,
        passive: true,
        signal: this.end.signal,
      });
  }
}
