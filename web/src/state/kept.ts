// SPDX-License-Identifier: Apache-2.0
// Choices about the page itself, which the browser keeps for this origin.

/** Gives the browser's localStorage. A browser that blocks it throws when it is named. */
type Give = () => Pick<Storage, 'getItem' | 'setItem'>;

/** A choice: its key in the browser's localStorage, and its values, the first by default. */
export interface Kept<T extends string> {
  key: string;
  values: readonly [T, ...T[]];
}

export type Theme = 'system' | 'light' | 'dark';

/** `system`: as the user's system says. */
export const THEME: Kept<Theme> = { key: 'podflame-theme', values: ['system', 'light', 'dark'] };
/** Whether single keys act. Programs that take dictation type them by mistake. */
export const KEYS: Kept<'on' | 'off'> = { key: 'podflame-keys', values: ['on', 'off'] };

/** The choice. Of a browser that keeps nothing, or something else, it is the first. */
export function readKept<T extends string>({ key, values }: Kept<T>, storage: Give): T {
  try {
    const kept = storage().getItem(key);
    return values.find((value) => value === kept) ?? values[0];
  } catch {
    return values[0];
  }
}

export function keep<T extends string>({ key }: Kept<T>, value: T, storage: Give): void {
  try {
    storage().setItem(key, value);
  } catch {
    // the choice lasts until the user leaves the page
  }
}

export const isDark = (theme: Theme, isSystemDark: boolean): boolean =>
  theme === 'dark' || (theme === 'system' && isSystemDark);
