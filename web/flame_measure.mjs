// SPDX-License-Identifier: Apache-2.0
// What the benches in Chromium share: profiles of fixed sizes, memory, frames, and lines of JSON.
import { readFileSync } from 'node:fs';

/** Nodes of largeProfile() (src/profile/testing.ts): 100,000 distinct stacks have the first. */
export const NODES = { stacks: 610_000, million: 1_000_000 };
export const SIZE = { width: 1280, height: 800 };

/** Prints a line for `make bench`: the median of the values, and how far they are apart. */
export function tell(name, values, unit, goal = '', what = '') {
  const sorted = [...values].sort((a, b) => a - b);
  const round = (v) => Number(v.toPrecision(4));

  console.log(JSON.stringify({
    name, value: round(sorted[sorted.length >> 1]), least: round(sorted[0]),
    most: round(sorted.at(-1)), rounds: sorted.length, unit, goal, compared_with: what,
  }));
}

/** MB of the renderer's memory, once what is not used any more is gone. */
export async function memory(browser, page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('HeapProfiler.collectGarbage');
  const all = await (await browser.newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const pss = all.processInfo
    .filter((p) => p.type === 'renderer')
    .map((p) => /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${p.id}/smaps_rollup`, 'utf8'))[1]);

  return Math.max(...pss) / 1000;
}
