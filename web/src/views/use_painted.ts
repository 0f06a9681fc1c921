// SPDX-License-Identifier: Apache-2.0
// What can wait until the rest is on the screen.
import { useEffect, useState } from 'preact/hooks';

/** Whether the browser has painted the component once. */
export function usePainted(): boolean {
  const [isPainted, setPainted] = useState(false);

  useEffect(() => {
    let later = 0;
    const frame = requestAnimationFrame(() => {
      later = window.setTimeout(() => setPainted(true));
    });

    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(later);
    };
  }, []);
  return isPainted;
}
