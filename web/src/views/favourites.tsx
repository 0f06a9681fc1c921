// SPDX-License-Identifier: Apache-2.0
// Selections with a name, which this browser keeps.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { inert } from '../profile/names';
import { parse, print } from '../state/address';
import {
  DAMAGED_KEY, forget, keep, KEY, MAX_NAME, readFavourites, type Kept,
} from '../state/favourites';
import type { Change, State } from '../state/state';
import { errorText } from '../words/error';
import { shown } from './filter_words';
import { focusNeighbour } from './focus_neighbour';
import { PopupButton } from './popup';

interface Props {
  state: State;
  change: Change;
  now: number;
}

interface ListProps {
  address: string; // of what is chosen now
  onChoose: (address: string) => void;
}

const none: Kept = { favourites: [], isDamaged: false };

export function Favourites({ state, change, now }: Props) {
  return (
    <PopupButton id="favourites" text="favourites">
      {(close) => (
        <FavouriteList
          address={print(state)}
          onChoose={(address) => {
            close();
            change(parse(address, now), 'push');
          }}
        />
      )}
    </PopupButton>
  );
}

/** What the browser keeps, why it refused the last change, and a way to change it. */
function useKept(): { kept: Kept; error: string; attempt: (change: () => void) => void } {
  const [kept, setKept] = useState(none);
  const [error, setError] = useState('');
  const attempt = useCallback((change: () => void): void => {
    try {
      change();
      setKept(readFavourites(localStorage));
      setError('');
    } catch (e) {
      setError(errorText(e));
    }
  }, []);

  useEffect(() => {
    const read = (): void => attempt(() => {});
    read();
    addEventListener('storage', read); // another tab has changed it
    return () => removeEventListener('storage', read);
  }, [attempt]);
  return { kept, error, attempt };
}

function FavouriteList({ address, onChoose }: ListProps) {
  const { kept: { favourites, isDamaged }, error, attempt } = useKept();
  const [name, setName] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const isThere = favourites.some((f) => f.name === name.trim());

  const save = (e: Event): void => {
    e.preventDefault();
    attempt(() => {
      keep(localStorage, name.trim(), address);
      setName('');
    });
  };

  const remove = (button: Element, gone: string): void => {
    focusNeighbour(button, () => input.current);
    attempt(() => forget(localStorage, gone));
  };

  return (
    <>
      {favourites.length === 0 && <p class="muted">No favourite is kept in this browser yet.</p>}
      <ul class="favourite-list">
        {favourites.map((f) => (
          <li key={f.name}>
            <button
              class="favourite" title={shown(f.address)} onClick={() => onChoose(f.address)}
            >{inert(f.name)}</button>
            <button
              class="chip-remove" aria-label={`remove the favourite ${inert(f.name)}`}
              onClick={(e) => remove(e.currentTarget, f.name)}
            >×</button>
          </li>
        ))}
      </ul>
      <form onSubmit={save}>
        <input
          ref={input} name="favourite" aria-label="name for what is chosen now" required
          maxLength={MAX_NAME} placeholder="name for what is chosen now" value={name}
          autocomplete="off"
          onInput={(e) => setName(e.currentTarget.value)}
        />
        <button>{isThere ? 'replace' : 'keep'}</button>
      </form>
      {isDamaged && <Damage />}
      {error && <p role="alert">The browser does not keep it: {error}</p>}
    </>
  );
}

const Damage = () => (
  <p role="alert">
    The page cannot read all of its favourites in this browser (local storage, <code>{KEY}</code>).
    The next change of a favourite moves them to <code>{DAMAGED_KEY}</code>.
  </p>
);
