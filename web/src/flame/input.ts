// SPDX-License-Identifier: Apache-2.0
// What the user does with the pointer and the keyboard.
import type { FlameGraph, Frame } from './flame';
import { listenForMenu } from './menu';

export function listen(graph: FlameGraph, frames: HTMLElement, signal: AbortSignal): void {
  const at = (x: number, y: number): Frame | null => {
    const { left, top } = frames.getBoundingClientRect();
    return graph.frameAt(x - left, y - top);
  };

  frames.addEventListener('pointermove', (e) => graph.hover(at(e.clientX, e.clientY)), { signal });
  frames.addEventListener('pointerleave', () => graph.hover(null), { signal });
  frames.addEventListener(
    'click',
    (e) => {
      const frame = at(e.clientX, e.clientY);
      if (frame) graph.press(frame);
    },
    { signal },
  );
  frames.addEventListener('keydown', (e) => onKey(graph, e), { signal });
  listenForMenu(frames, (asked) => graph.openMenu(asked && at(asked.x, asked.y), asked), signal);
}

function onKey(graph: FlameGraph, e: KeyboardEvent): void {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  switch (e.key) {
    case 'ArrowUp':
    case 'ArrowDown':
    case 'ArrowLeft':
    case 'ArrowRight':
      graph.walk(e.key);
      break;
    case 'Home':
      graph.select(0);
      break;
    case 'Enter':
      graph.zoomToSelected();
      break;
    case 'Escape':
      graph.zoom(0);
      break;
    default:
      return;
  }
  e.preventDefault();
}
