// SPDX-License-Identifier: Apache-2.0
import { useCallback, useState } from 'preact/hooks';
import { keep, readKept, type Kept } from '../state/kept';

const storage = (): Storage => localStorage;

/** A choice about the page itself, and a function that changes it for this time and later. */
export function useKept<T extends string>(choice: Kept<T>): [T, (value: T) => void] {
  const [value, setValue] = useState(() => readKept(choice, storage));
  const change = useCallback(
    (next: T) => {
      keep(choice, next, storage);
      setValue(next);
    },
    [choice],
  );

  return [value, change];
}
