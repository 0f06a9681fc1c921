// SPDX-License-Identifier: Apache-2.0
// Whether the page is dark or light. The browser keeps the choice for this origin.

export const themes = ['system', 'light', 'dark'] as const;
/** `system`: as the user's system says. */
export type Theme = (typeof themes)[number];

export const KEY = 'podflame-theme';

type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem'>;

/** A browser that keeps nothing, or something else, means `system`. */
export function readTheme(storage: Storage): Theme {
  try {
    const kept = storage.getItem(KEY);
    return themes.find((theme) => theme === kept) ?? 'system';
  } catch {
    return 'system';
  }
}

export function keepTheme(storage: Storage, theme: Theme): void {
  try {
    storage.setItem(KEY, theme);
  } catch {
    // the theme lasts until the page is left
  }
}

export const isDark = (theme: Theme, isSystemDark: boolean): boolean =>
  theme === 'dark' || (theme === 'system' && isSystemDark);
