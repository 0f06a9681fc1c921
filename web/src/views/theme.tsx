// SPDX-License-Identifier: Apache-2.0
import { THEME, type Theme } from '../state/kept';
import type { Themes } from './use_theme';

const titles: Record<Theme, string> = { system: 'as the system', light: 'light', dark: 'dark' };

export const ThemeChoice = ({ theme, setTheme }: Themes) => (
  <select
    id="theme"
    aria-label="colours of the page"
    value={theme}
    onChange={(e) => setTheme(e.currentTarget.value as Theme)}
  >
    {THEME.values.map((name) => <option key={name} value={name}>{titles[name]}</option>)}
  </select>
);
