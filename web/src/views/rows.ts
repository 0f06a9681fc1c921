// SPDX-License-Identifier: Apache-2.0
// Which rows of a long table are in the window of its scrolling element: only they are rendered.
import { useCallback, useLayoutEffect, useRef, useState } from 'preact/hooks';

export const ROW_PX = 24;
const OVERSCAN = 10; // rows above and below

interface Rows {
  element: { current: HTMLDivElement | null }; // the one that scrolls
  first: number;
  end: number; // behind the last
  /** Scrolls until a row is in the window. */
  reveal: (row: number) => void;
}

export function useRows(count: number, headPx: number): Rows {
  const element = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 0 });
  const look = useCallback(() => {
    const { scrollTop: top, clientHeight: height } = element.current!;

    setSeen((old) => (old.top === top && old.height === height ? old : { top, height }));
  }, []);
  const reveal = useCallback((row: number) => {
    const { scrollTop, clientHeight } = element.current!;
    const top = row * ROW_PX;
    const lowest = top + ROW_PX + headPx - clientHeight;

    element.current!.scrollTop = Math.min(top, Math.max(lowest, scrollTop));
    look();
  }, [look, headPx]);

  useLayoutEffect(() => {
    const scrolls = element.current!;
    const resized = new ResizeObserver(look);

    resized.observe(scrolls);
    scrolls.addEventListener('scroll', look, { passive: true });
    return () => {
      resized.disconnect();
      scrolls.removeEventListener('scroll', look);
    };
  }, [look]);
  useLayoutEffect(() => {
    if (count >= 0) look(); // fewer rows may scroll the element
  }, [count, look]);
  return {
    element,
    first: Math.min(count, Math.max(0, Math.floor(seen.top / ROW_PX) - OVERSCAN)),
    end: Math.min(count, Math.ceil((seen.top + seen.height) / ROW_PX) + OVERSCAN),
    reveal,
  };
}
