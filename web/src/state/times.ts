// SPDX-License-Identifier: Apache-2.0
// Times to choose, and their texts. All are in seconds; a moment is in Unix seconds.
import type { Times } from './state';

/** The longest window of profiles, which are stored at its end, and its way to the hub. */
export const WINDOW_S = 90;

/** From and to, both in Unix seconds. */
export type Interval = [from: number, to: number];

export const ranges: [last: number, text: string][] = [
  [300, 'last 5 minutes'],
  [900, 'last 15 minutes'],
  [3600, 'last hour'],
  [21600, 'last 6 hours'],
  [86400, 'last day'],
  [259200, 'last 3 days'],
];

export const intervalOf = (times: Times, now: number): Interval =>
  'last' in times ? [now - times.last, now] : [times.from, times.to];

/** The same times for everybody, whenever they look. */
export function absolute(times: Times, now: number): Times {
  const [from, to] = intervalOf(times, now);

  return { from, to };
}

/** Three times as long, with the old times in the middle, but not later than now. */
export function longer([from, to]: Interval, now: number): Interval {
  const length = to - from;
  const end = Math.max(to, Math.min(to + length, now));

  return [end - 3 * length, end];
}

/** The time before, which is as long. */
export const previous = ([from, to]: Interval): Interval => [from - (to - from), from];

/** The form of the address: UTC, so that a link means the same time everywhere. */
export const utc = (s: number): string => `${new Date(s * 1000).toISOString().slice(0, 19)}Z`;

/** The form of a datetime-local input. */
export const localTime = (s: number): string =>
  utc(s - new Date(s * 1000).getTimezoneOffset() * 60).slice(0, 19);

/** The year 10000, whose moments have no such text. */
const END_S = Date.UTC(10_000, 0) / 1000;

/** Unix seconds of a text in either form; null: it is no time that profiles can have. */
export function parseTime(text: string | null): number | null {
  const s = Math.floor(Date.parse(text ?? '') / 1000);

  return s >= 0 && s < END_S ? s : null;
}

const MAX_LAST_S = 100 * 365 * 86400;

/** Seconds back from now; null: it is no such number, or far longer than profiles are kept. */
export function parseLast(text: string | null): number | null {
  const s = Number(text);

  return Number.isInteger(s) && s > 0 && s <= MAX_LAST_S ? s : null;
}

/** The hub's clock, by which it stores profiles. Until it is known, it is this machine's. */
export class Clock {
  private ahead = 0;

  /** The hub has said its time. */
  set(hub: number): void {
    this.ahead = hub - Date.now() / 1000;
  }

  now(): number {
    return Math.floor(Date.now() / 1000 + this.ahead);
  }
}
