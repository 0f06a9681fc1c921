// SPDX-License-Identifier: Apache-2.0
import type { Colouring } from './colours';
import type { Frame } from './scene';

export interface Options {
  /** What a screen reader calls the graph. */
  label: string;
  /** A value in words, with its unit. */
  value: (value: number) => string;
  /** The value that shares are of; null: that of the root. */
  whole: number | null;
  /** More words about a function; '': none. */
  about: (name: string, kind: string) => string;
  /** Draws names without type arguments. Colours and text() use the full name. */
  short: boolean;
  /** The root is at the bottom. */
  upward: boolean;
  /** The root is a function, and the others call the frame that they lie beside. */
  callers: boolean;
  colours: Colouring;
  /** The page is dark. */
  dark: boolean;
  /** null: the pointer has left the frames. */
  onHover: (frame: Frame | null) => void;
  /** The user has selected another frame. */
  onSelect: (node: number) => void;
  onZoom: (node: number) => void;
  /** The user asks for a menu of a frame, at a point of the window. null: there is none. */
  onMenu: ((node: number, at: { x: number; y: number }) => void) | null;
}

export const defaults: Options = {
  label: 'flame graph',
  value: (value) => value.toLocaleString(),
  about: () => '',
  whole: null,
  short: false,
  upward: false,
  callers: false,
  colours: 'kind',
  dark: false,
  onHover: () => {},
  onSelect: () => {},
  onZoom: () => {},
  onMenu: null,
};
