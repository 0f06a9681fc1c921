// SPDX-License-Identifier: Apache-2.0
// What the keys do, and the button that lists them.
import { useState } from 'preact/hooks';
import { KEYS } from '../state/kept';
import { timesOf, withTimes, zoomedOut } from '../state/leak';
import type { Change, State, ViewName } from '../state/state';
import { previous } from '../state/times';
import { Keys } from './keys';
import { useKept } from './use_kept';
import { useKeys } from './use_keys';
import type { Themes } from './use_theme';

interface Props {
  state: State;
  change: Change;
  now: number;
  views: ViewName[];
  reload: () => void;
  themes: Themes;
}

const element = (id: string): HTMLElement | null => document.getElementById(id);

export function Shortcuts({ state, change, now, views, reload, themes }: Props) {
  const [isOpen, setOpen] = useState(false);
  const [kept, keep] = useKept(KEYS);
  const show = (view: ViewName) => () => {
    if (views.includes(view)) change({ view });
  };
  const showPrevious = (): void => {
    const [from, to] = previous(timesOf(state, now));
    change(withTimes(state, { from, to }, now));
  };

  useKeys(kept === 'on', {
    keys: () => setOpen(true),
    search: () => element('search')?.focus(),
    graph: () => {
      show('graph')();
      // once it is there
      requestAnimationFrame(() =>
        document.querySelector<HTMLElement>('#chart .flame-frames')?.focus());
    },
    table: show('table'),
    sandwich: show('sandwich'),
    breakdown: show('breakdown'),
    request: show('request'),
    reload,
    'zoom-out': () => change(zoomedOut(state, now)),
    previous: showPrevious,
    share: () => element('share')?.click(),
    theme: () => themes.setTheme(themes.isDark ? 'light' : 'dark'),
  });
  return (
    <>
      <button id="show-keys" aria-label="keys" onClick={() => setOpen(true)}>?</button>
      <Keys
        isOpen={isOpen}
        onClose={() => setOpen(false)}
        isOn={kept === 'on'}
        setOn={(isOn) => keep(isOn ? 'on' : 'off')}
      />
    </>
  );
}
