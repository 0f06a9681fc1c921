// SPDX-License-Identifier: Apache-2.0
import { createContext } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';
import { isDark, THEME, type Theme } from '../state/kept';
import { useKept } from './use_kept';

const system = matchMedia('(prefers-color-scheme: dark)');

/** Whether the page is dark, for what is drawn on a canvas. */
export const IsDark = createContext(false);

export interface Themes {
  theme: Theme;
  isDark: boolean;
  setTheme: (theme: Theme) => void;
}

/** The theme of the page, which style.css finds at the root element. */
export function useTheme(): Themes {
  const [theme, setTheme] = useKept(THEME);
  const [isSystemDark, setSystemDark] = useState(system.matches);

  useLayoutEffect(() => {
    const onChange = (): void => setSystemDark(system.matches);

    system.addEventListener('change', onChange);
    return () => system.removeEventListener('change', onChange);
  }, []);
  // before the effects of the views, which draw in its colours
  document.documentElement.dataset.theme = theme;
  return { theme, isDark: isDark(theme, isSystemDark), setTheme };
}
