// SPDX-License-Identifier: Apache-2.0
// The colours of frames, and their words in a legend.
import type { Change } from '../profile/difference';

/** What the colour of a frame says. */
export type Colouring = 'kind' | 'module' | 'difference';

interface Kind {
  label: string;
  hue: number;
  saturation: number;
  hatched?: boolean; // it is not a part of what was measured
}

/** The kind of a frame gives its hue, and the name its lightness. */
export const kinds: Record<string, Kind> = {
  app: { label: 'program', hue: 110, saturation: 45 },
  library: { label: 'library', hue: 48, saturation: 80 },
  kernel: { label: 'kernel', hue: 16, saturation: 80 },
  jvm: { label: 'Java', hue: 150, saturation: 45 },
  python: { label: 'Python', hue: 220, saturation: 65 },
  lua: { label: 'Lua', hue: 255, saturation: 50 },
  cuda: { label: 'CUDA', hue: 280, saturation: 50 },
  object: { label: 'object', hue: 190, saturation: 50 },
  cpu: { label: 'CPU time', hue: 95, saturation: 60 },
  missing: { label: 'missing', hue: 0, saturation: 0, hatched: true },
  'wait: runqueue': { label: 'ready, but no CPU', hue: 0, saturation: 75 },
  'wait: lock': { label: 'lock', hue: 300, saturation: 55 },
  'wait: disk': { label: 'disk', hue: 30, saturation: 55 },
  'wait: socket': { label: 'socket', hue: 200, saturation: 75 },
  'wait: pipe': { label: 'pipe', hue: 175, saturation: 55 },
  'wait: poll': { label: 'poll, epoll', hue: 235, saturation: 40 },
  'wait: sleep': { label: 'sleep', hue: 70, saturation: 35 },
  'wait: gpu': { label: 'GPU', hue: 140, saturation: 65 },
  'wait: other': { label: 'other waits', hue: 0, saturation: 20 },
  process: { label: 'process', hue: 210, saturation: 30 },
  thread: { label: 'thread', hue: 210, saturation: 30 },
  group: { label: 'group', hue: 210, saturation: 10 },
  unnamed: { label: 'not resolved', hue: 0, saturation: 0 },
  marker: { label: 'incomplete', hue: 330, saturation: 60 },
};

/** Degrees, and two percentages. */
export interface Colour {
  hue: number;
  saturation: number;
  lightness: number;
}

export const FOUND: Colour = { hue: 300, saturation: 100, lightness: 45 };
/** Frames that are too narrow to draw, together, if a search has found some of them. */
export const REST_FOUND: Colour = { hue: 300, saturation: 100, lightness: 80 };

const grey = (lightness: number): Colour => ({ hue: 0, saturation: 0, lightness });

/** What is around the frames. */
export interface Theme {
  background: Colour;
  rest: Colour; // of frames that are too narrow to draw, together
  /** For the callers of the frame that the graph is zoomed to: nearer to the background. */
  faded(colour: Colour): Colour;
}
export const LIGHT: Theme = {
  background: grey(100),
  rest: grey(87),
  faded: (colour) => ({ ...colour, lightness: 50 + colour.lightness / 2 }),
};
export const DARK: Theme = {
  background: grey(11),
  rest: grey(30),
  faded: (colour) => ({ ...colour, lightness: 0.45 * colour.lightness }),
};

function hash(text: string): number {
  let sum = 0;

  for (let i = 0; i < Math.min(text.length, 256); i++) sum = (sum * 31 + text.charCodeAt(i)) | 0;
  return Math.abs(sum);
}

const lightness = (name: string): number => 66 + (hash(name) % 16);

export function colour(kind: string, name: string): Colour {
  const { hue, saturation, hatched } = kinds[kind] ?? kinds.process;

  return { hue, saturation, lightness: hatched ? 92 : lightness(name) };
}

/** A module has one of 24 hues, the same in each profile. */
export const moduleColour = (module: string, name: string): Colour => ({
  hue: 15 * (hash(module) % 24),
  saturation: 55,
  lightness: lightness(name),
});

/** Light enough for black text. Blue and orange differ for colour-blind people, too. */
const MORE = { hue: 22, saturation: 90 };
const LESS = { hue: 213, saturation: 80 };
const NOISE: Colour = { hue: 0, saturation: 0, lightness: 80 };

/** The greater a change is beside the value itself, the stronger is the colour. */
export function changeColour({ now, before, isNoise }: Change): Colour {
  const part = (now - before) / Math.max(now, before);

  if (isNoise) return NOISE;
  return { ...(part > 0 ? MORE : LESS), lightness: 91 - 29 * Math.abs(part) };
}

/** As a canvas keeps it: one byte each of alpha, blue, green, red. */
export function packed({ hue, saturation, lightness }: Colour): number {
  const l = lightness / 100;
  const spread = (saturation / 100) * Math.min(l, 1 - l);
  const byte = (n: number): number => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - spread * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };

  return ((255 << 24) | (byte(4) << 16) | (byte(8) << 8) | byte(0)) >>> 0;
}

const linear = (byte: number): number =>
  byte <= 10 ? byte / 3294 : ((byte / 255 + 0.055) / 1.055) ** 2.4;

/** How bright a pixel is, from 0 to 1 (WCAG 2.2, relative luminance). */
export const luminance = (pixel: number): number =>
  0.2126 * linear(pixel & 255) +
  0.7152 * linear((pixel >>> 8) & 255) +
  0.0722 * linear((pixel >>> 16) & 255);

/** Black or white, whichever can be read better on a pixel: its contrast is 4.58 or more. */
export const textOn = (pixel: number): string => (luminance(pixel) > 0.179 ? '#000' : '#fff');

/** "#rrggbb", which programs that show SVG know, too. */
export function css(of: Colour): string {
  const pixel = packed(of);
  const bytes = [pixel, pixel >> 8, pixel >> 16].map((byte) => byte & 255);

  return `#${bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
