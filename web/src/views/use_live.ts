// SPDX-License-Identifier: Apache-2.0
import { useLayoutEffect } from 'preact/hooks';
import { useLatest } from './latest';

const REFRESH_MS = 10_000;

/** Asks again and again while it is on, once nothing is under way, in a page that is seen. */
export function useLive(isOn: boolean, isBusy: boolean, ask: () => void): void {
  const latest = useLatest({ isOn, isBusy, ask });

  useLayoutEffect(() => {
    const timer = setInterval(() => {
      const { isOn: on, isBusy: busy, ask: again } = latest.current;
      if (on && !busy && !document.hidden) again();
    }, REFRESH_MS);

    return () => clearInterval(timer);
  }, []);
}
