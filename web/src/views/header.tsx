// SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren } from 'preact';
import type { Info } from '../api/types';

interface Props {
  info: Info | null;
  isBusy: boolean;
  children: ComponentChildren; // choices about the page itself
}

export function Header({ info, isBusy, children }: Props) {
  const { version = '', cluster_name: cluster } = info ?? {};

  return (
    <header>
      <h1>podflame</h1>
      <span id="version" class="muted">{cluster ? `${version} · ${cluster}` : version}</span>
      <span id="busy" class="muted" role="status">{isBusy ? 'loading …' : ''}</span>
      {children}
    </header>
  );
}
