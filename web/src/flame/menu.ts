// SPDX-License-Identifier: Apache-2.0
// When the user asks for a menu: with the right button, the key ContextMenu, Shift and F10, or a
// finger that rests.

const REST_MS = 500;
const MOVED_PX = 10; // more is a scroll

/** A point of the window, in CSS pixels; null: the user asked with the keyboard. */
export type Asked = { x: number; y: number } | null;

/** `open` returns whether there is a menu; if not, the browser shows its own. */
export function listenForMenu(
  element: HTMLElement,
  open: (asked: Asked) => boolean,
  signal: AbortSignal,
): void {
  element.addEventListener(
    'contextmenu',
    (e) => open({ x: e.clientX, y: e.clientY }) && e.preventDefault(),
    { signal },
  );
  element.addEventListener(
    'keydown',
    (e) => {
      const isAsked = e.key === 'ContextMenu' || (e.key === 'F10' && e.shiftKey);

      if (isAsked && open(null)) e.preventDefault();
    },
    { signal },
  );
  listenForRest(element, open, signal);
}

/** Some browsers do not tell a page that a finger rests. */
function listenForRest(
  element: HTMLElement,
  open: (asked: Asked) => boolean,
  signal: AbortSignal,
): void {
  let timer = 0;
  let start = { x: 0, y: 0 };
  let isOpen = false; // the click that ends the rest is none
  const stop = (): void => clearTimeout(timer);

  element.addEventListener(
    'pointerdown',
    (e) => {
      stop();
      isOpen = false;
      if (e.pointerType !== 'touch') return;
      start = { x: e.clientX, y: e.clientY };
      timer = window.setTimeout(() => (isOpen = open(start)), REST_MS);
    },
    { signal },
  );
  element.addEventListener(
    'pointermove',
    (e) => Math.hypot(e.clientX - start.x, e.clientY - start.y) > MOVED_PX && stop(),
    { signal },
  );
  for (const end of ['pointerup', 'pointercancel', 'contextmenu'])
    element.addEventListener(end, stop, { signal });
  element.addEventListener(
    'click',
    (e) => {
      if (isOpen) e.stopPropagation();
      isOpen = false;
    },
    { capture: true, signal },
  );
  signal.addEventListener('abort', stop);
}
