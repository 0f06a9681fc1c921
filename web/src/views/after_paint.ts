// SPDX-License-Identifier: Apache-2.0
// What can wait until the rest is on the screen.
import { useEffect, useState } from 'preact/hooks';

/** The value, once the browser has painted what was rendered with it; until then the one before. */
export function useAfterPaint<T>(value: T): T | null {
  const [painted, setPainted] = useState<T | null>(null);

  useEffect(() => {
    let later = 0;
    const frame = requestAnimationFrame(() => {
      later = window.setTimeout(() => setPainted(() => value));
    });

    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(later);
    };
  }, [value]);
  return painted;
}
