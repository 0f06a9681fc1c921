// SPDX-License-Identifier: Apache-2.0
import type { Info } from '../api/types';

export function Header({ info, isBusy }: { info: Info | null; isBusy: boolean }) {
  const { version = '', cluster_name: cluster } = info ?? {};

  return (
    <header>
      <h1>podflame</h1>
      <span id="version" class="muted">{cluster ? `${version} · ${cluster}` : version}</span>
      <span id="busy" class="muted" role="status">{isBusy ? 'loading …' : ''}</span>
    </header>
  );
}
