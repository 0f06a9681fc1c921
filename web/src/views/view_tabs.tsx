// SPDX-License-Identifier: Apache-2.0
// Chooses one of the views of a profile.
import type { Change, State, ViewName } from '../state/state';

interface Props {
  views: { name: ViewName; title: string }[];
  state: State;
  change: Change;
}

export function ViewTabs({ views, state, change }: Props) {
  if (views.length < 2) return null;
  return (
    <nav id="views" aria-label="views of the profile">
      {views.map(({ name, title }) => (
        <button
          key={name}
          id={`view-${name}`}
          aria-current={name === state.view ? 'page' : undefined}
          onClick={() => change({ view: name })}
        >
          {title}
        </button>
      ))}
    </nav>
  );
}
