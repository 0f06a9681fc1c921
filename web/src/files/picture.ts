// SPDX-License-Identifier: Apache-2.0
// What a flame graph shows, as a picture to be saved: a heading, and the frames below it.
import type { Box, FlameGraph } from '../flame/flame';
import { inert } from '../profile/names';

/** A frame of a picture. Lengths are in CSS pixels, from the left upper corner of the picture. */
export interface PictureFrame extends Omit<Box, 'name' | 'node' | 'rest'> {
  label: string; // as much of the name as fits
  title: string; // the frame in words
}

export interface Picture {
  heading: string;
  width: number;
  height: number;
  frames: PictureFrame[];
  leftOut: number; // rows that are too far from the root for the height
}

// The letters of this font are equally wide: what fits is known where nothing can be measured.
export const FONT = { family: 'monospace', size: 12 };
const LETTER_WIDTH = 7.3; // px
export const PADDING = 4; // px beside a label
const HEADING_HEIGHT = 28; // px
export const BASELINE = 0.72; // of a row's height

const fit = (text: string, width: number): string => {
  const room = Math.floor((width - 2 * PADDING) / LETTER_WIDTH);
  const letters = [...text.slice(0, 2 * room + 2)]; // a letter may be two units of text

  if (letters.length <= room) return letters.join('');
  return room < 3 ? '' : `${letters.slice(0, room - 1).join('')}…`;
};

const greatest = (numbers: number[]): number => numbers.reduce((a, b) => Math.max(a, b), 0);

/**
 * All that the graph shows, or so many pixels of it. The rows that are near the root are kept.
 */
export function pictureOf(
  graph: Pick<FlameGraph, 'boxes' | 'text'>,
  heading: string,
  mostHeight = Infinity,
): Picture {
  const boxes = graph.boxes();
  const rowHeight = boxes[0]?.height ?? 1;
  const all = greatest(boxes.map((b) => b.y + b.height));
  const height = Math.min(all, Math.floor((mostHeight - HEADING_HEIGHT) / rowHeight) * rowHeight);
  const isUpward = boxes.some((b) => b.node === 0 && b.y > 0);
  const top = isUpward ? all - height : 0;
  const kept = boxes.filter((b) => b.y >= top && b.y + b.height <= top + height);

  return {
    heading: inert(heading),
    width: greatest(boxes.map((b) => b.x + b.width)),
    height: HEADING_HEIGHT + height,
    frames: kept.map((b) => ({
      x: b.x,
      y: HEADING_HEIGHT + b.y - top,
      width: b.width,
      height: b.height,
      colour: b.colour,
      textColour: b.textColour,
      hatched: b.hatched,
      label: fit(b.name, b.width),
      title: b.rest ? `${b.name} frames` : graph.text(b),
    })),
    leftOut: Math.round((all - height) / rowHeight),
  };
}
