// SPDX-License-Identifier: Apache-2.0
// Paints frames on a canvas. The boxes are written as pixels, of which a frame costs a few and a
// row is copied; only labels that fit are drawn as text.
import { textOn } from './colours';

const FONT = '12px system-ui, sans-serif';
const PADDING = 4; // px beside a label
const NARROWEST_LABEL = 24; // px
const GAP = 1; // px between frames
const LEAST_BEGIN = 5; // characters of a label's begin before any of its end
const HATCH = 'rgb(0 0 0 / 22%)';
const HATCH_DISTANCE = 7; // px from line to line

const characterAt = (text: string, at: number): string =>
  String.fromCodePoint(text.codePointAt(at)!);

/** The character that ends at a place of the text. */
const characterBefore = (text: string, end: number): string =>
  [...text.slice(Math.max(0, end - 2), end)].at(-1)!;

/** Fits texts into widths. It measures each character once. */
class Ruler {
  private readonly widths = new Map<string, number>();

  constructor(private readonly context: CanvasRenderingContext2D) {}

  /**
   * As much of the text as fits: its begin, and if there is room also its end, because many names
   * differ only there (those of one Java package). "": less than three characters of it do.
   */
  fit(text: string, width: number): string {
    const most = width - this.width('…');
    let [first, last] = [0, text.length]; // what is kept ends and begins there
    let used = 0;
    let kept = 0;

    if (this.fits(text, width)) return text;
    for (; ; kept++) {
      const isBegin = kept < LEAST_BEGIN || kept % 2 === 1;
      const c = isBegin ? characterAt(text, first) : characterBefore(text, last);

      used += this.width(c);
      if (used > most) break;
      if (isBegin) first += c.length;
      else last -= c.length;
    }
    return kept < 3 ? '' : `${text.slice(0, first)}…${text.slice(last)}`;
  }

  private fits(text: string, width: number): boolean {
    let used = 0;

    for (const c of text) if ((used += this.width(c)) > width) return false;
    return true;
  }

  private width(c: string): number {
    let width = this.widths.get(c);

    if (width === undefined) this.widths.set(c, (width = this.context.measureText(c).width));
    return width;
  }
}

/** A picture of rows of frames. Lengths are in CSS pixels. */
export class Picture {
  private readonly context: CanvasRenderingContext2D;
  private readonly ruler: Ruler;
  private image = new ImageData(1, 1);
  private pixels = new Uint32Array(1);
  private labels: [text: string, colour: string, x: number, row: number][] = [];
  private hatched: [left: number, right: number, row: number][] = [];
  private ratio = 1;
  private rowPixels = 1; // the height of a row in pixels of the device

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext('2d')!;
    this.ruler = new Ruler(this.context);
  }

  /** The height of a row: a whole number of the device's pixels. */
  static rowHeight(): number {
    return Math.round(18 * devicePixelRatio) / devicePixelRatio;
  }

  /** Begins an empty picture. */
  begin(width: number, rows: number, background: number): void {
    this.ratio = devicePixelRatio;
    this.rowPixels = Math.round(Picture.rowHeight() * this.ratio);
    const w = Math.max(1, Math.round(width * this.ratio));
    const h = Math.max(1, rows * this.rowPixels);

    if (w !== this.image.width || h !== this.image.height) {
      this.image = new ImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.canvas.width = w;
      this.canvas.height = h;
    }
    this.canvas.style.width = `${w / this.ratio}px`;
    this.canvas.style.height = `${h / this.ratio}px`;
    this.pixels.fill(background);
    this.labels = [];
    this.hatched = [];
    // a canvas forgets all of this when its size changes
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.font = FONT;
    this.context.direction = 'ltr';
    this.context.textBaseline = 'middle';
  }

  /** Adds a frame, or the part of it that is in the picture. */
  frame(
    x: number,
    width: number,
    row: number,
    colour: number,
    label: () => string,
    isHatched = false,
  ): void {
    const line = this.image.width;
    const left = Math.max(0, Math.round(x * this.ratio));
    const right = Math.min(line, Math.max(Math.round((x + width) * this.ratio), left + 1));
    const gap = right - left > 3 * this.ratio && right < line ? GAP : 0;
    const at = row * this.rowPixels * line;

    this.pixels.fill(colour, at + left, at + right - gap);
    if (isHatched) this.hatched.push([left / this.ratio, (right - gap) / this.ratio, row]);
    const seen = (right - left) / this.ratio;
    if (seen >= NARROWEST_LABEL) {
      const text = this.ruler.fit(label(), seen - 2 * PADDING);
      if (text) this.labels.push([text, textOn(colour), left / this.ratio + PADDING, row]);
    }
  }

  /** Shows the picture. */
  end(): void {
    const { width, height } = this.image;

    for (let y = 0; y < height; y += this.rowPixels)
      for (let next = 1; next < this.rowPixels - GAP; next++)
        this.pixels.copyWithin((y + next) * width, y * width, (y + 1) * width);
    this.context.putImageData(this.image, 0, 0);
    for (const [left, right, row] of this.hatched) this.hatch(left, right, row);
    for (const [text, colour, x, row] of this.labels) {
      this.context.fillStyle = colour;
      this.context.fillText(text, x, ((row + 0.5) * this.rowPixels) / this.ratio);
    }
  }

  /** Draws slanted lines over a frame. */
  private hatch(left: number, right: number, row: number): void {
    const top = (row * this.rowPixels) / this.ratio;
    const height = (this.rowPixels - GAP) / this.ratio;

    this.context.save();
    this.context.beginPath();
    this.context.rect(left, top, right - left, height);
    this.context.clip();
    this.context.beginPath();
    for (let x = left - height; x < right; x += HATCH_DISTANCE) {
      this.context.moveTo(x, top + height);
      this.context.lineTo(x + height, top);
    }
    this.context.strokeStyle = HATCH;
    this.context.stroke();
    this.context.restore();
  }
}
