// SPDX-License-Identifier: Apache-2.0
import { useLayoutEffect } from 'preact/hooks';
import { actionOf, type KeyAction } from '../words/keys';
import { useLatest } from './latest';

type KeyActions = Record<KeyAction, () => void>;

/** Keys that the user types into a field, or presses in a dialog or menu, are not the page's. */
const isTaken = (target: EventTarget | null): boolean =>
  document.querySelector('dialog[open]') !== null ||
  (target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.closest('input:not([type=checkbox]), textarea, select, [role=menu]') !== null));

/** Does what the keys of words/keys.ts say. */
export function useKeys(isOn: boolean, actions: KeyActions): void {
  const latest = useLatest({ isOn, actions });

  useLayoutEffect(() => {
    const onKey = (e: KeyboardEvent): void => {
      const action = isTaken(e.target) ? null : actionOf(e);

      if (!action || !(latest.current.isOn || action === 'keys')) return;
      e.preventDefault(); // so that "/" is not typed into the search
      latest.current.actions[action]();
    };

    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
}
