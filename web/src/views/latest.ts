// SPDX-License-Identifier: Apache-2.0
import { useRef } from 'preact/hooks';

/** Lets what is made once (a listener, a class) see the newest value. */
export function useLatest<T>(value: T): { readonly current: T } {
  const latest = useRef(value);

  latest.current = value;
  return latest;
}
