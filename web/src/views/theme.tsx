// SPDX-License-Identifier: Apache-2.0
import { THEME, type Theme } from '../state/kept';
import { Choice } from './choice';
import type { Themes } from './use_theme';

const titles: Record<Theme, string> = { system: 'as the system', light: 'light', dark: 'dark' };

export const ThemeChoice = ({ theme, setTheme }: Themes) => (
  <Choice
    id="theme"
    label={<span class="unseen">colours of the page</span>}
    value={theme}
    options={THEME.values.map((value) => ({ value, text: titles[value] }))}
    onChoose={setTheme}
  />
);
