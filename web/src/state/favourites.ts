// SPDX-License-Identifier: Apache-2.0
// Selections that the user has given a name. The browser keeps them for this origin, each as the
// text behind the # of its address.

interface Favourite {
  name: string;
  address: string;
}

/** What can be read, and whether something else is stored. */
export interface Kept {
  favourites: Favourite[];
  isDamaged: boolean;
}

/** What favourites need of the browser's localStorage. */
type Storage = Pick<globalThis.Storage, 'getItem' | 'setItem'>;

export const KEY = 'podflame-favourites';
/** Where damaged text goes before it is written over. */
export const DAMAGED_KEY = `${KEY}-damaged`;

export const MAX_FAVOURITES = 100;
export const MAX_NAME = 100;
const MAX_ADDRESS = 20_000;

function isFavourite(it: unknown): it is Favourite {
  const { name, address } = (it ?? {}) as Partial<Favourite>;

  return (
    typeof name === 'string' && name !== '' && name.length <= MAX_NAME &&
    typeof address === 'string' && address.length <= MAX_ADDRESS
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export function readFavourites(storage: Storage): Kept {
  const text = storage.getItem(KEY) ?? '[]';
  const all = parse(text);
  const favourites = (Array.isArray(all) ? all : [])
    .filter(isFavourite)
    .slice(0, MAX_FAVOURITES)
    .map(({ name, address }) => ({ name, address }));

  return { favourites, isDamaged: !Array.isArray(all) || favourites.length < all.length };
}

/** Writes the favourites. What was damaged is kept beside them, behind what was before. */
function write(storage: Storage, favourites: Favourite[], isDamaged: boolean): void {
  if (isDamaged) {
    const before = storage.getItem(DAMAGED_KEY);
    storage.setItem(DAMAGED_KEY, [before, storage.getItem(KEY)].filter(Boolean).join('\n'));
  }
  storage.setItem(KEY, JSON.stringify(favourites));
}

/** Adds a favourite, or gives the one of this name another address. A limit throws an error. */
export function keep(storage: Storage, name: string, address: string): void {
  const { favourites, isDamaged } = readFavourites(storage);
  const others = favourites.filter((f) => f.name !== name);

  if (name === '' || name.length > MAX_NAME)
    throw new Error(`a name has 1 to ${MAX_NAME} characters`);
  if (others.length >= MAX_FAVOURITES)
    throw new Error(`the page keeps at most ${MAX_FAVOURITES} favourites: remove one first`);
  if (address.length > MAX_ADDRESS)
    throw new Error(`the filter is too long: the page keeps ${MAX_ADDRESS} characters`);
  const all = [...others, { name, address }];
  write(storage, all.sort((a, b) => a.name.localeCompare(b.name)), isDamaged);
}

export function forget(storage: Storage, name: string): void {
  const { favourites, isDamaged } = readFavourites(storage);

  write(storage, favourites.filter((f) => f.name !== name), isDamaged);
}
