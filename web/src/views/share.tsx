// SPDX-License-Identifier: Apache-2.0
// Copies an address that shows the same to others, whenever they open it.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { print } from '../state/address';
import type { State } from '../state/state';
import { absolute } from '../state/times';
import { copy } from './copy';

interface Props {
  state: State;
  now: number;
}

/** All that is chosen, with times that do not move. */
function addressOf({ times, compare, ...state }: State, now: number): string {
  const fixed = {
    ...state,
    times: absolute(times, now),
    compare: compare && { ...compare, times: absolute(compare.times, now) },
  };

  return `${location.href.split('#')[0]}#${print(fixed)}`;
}

export function Share({ state, now }: Props) {
  const [shared, setShared] = useState<{ state: State; address: string; isCopied: boolean }>();
  const input = useRef<HTMLInputElement>(null);
  const share = async (): Promise<void> => {
    const address = addressOf(state, now);
    const isCopied = await copy(address);

    setShared({ state, address, isCopied });
  };
  const isCurrent = shared?.state === state;

  useLayoutEffect(() => {
    if (shared) input.current?.select();
  }, [shared]);
  return (
    <>
      <button
        id="share"
        title="copies an address with the times that are shown now"
        onClick={() => void share()}
      >
        share
      </button>
      <span role="status" class="muted">
        {isCurrent && (shared.isCopied ? 'The address is copied.' : 'Copy the address:')}
      </span>
      {isCurrent && !shared.isCopied && (
        <input
          id="shared"
          ref={input}
          readOnly
          value={shared.address}
          aria-label="address to share"
        />
      )}
    </>
  );
}
