// SPDX-License-Identifier: Apache-2.0

/**
 * A button is about to remove the item of a list that it ends: the focus goes on to the same button
 * of the next item, else of the one before, else to another control.
 */
export function focusNeighbour(button: Element, another: () => HTMLElement | null): void {
  const item = button.closest('li')!;
  const neighbour = item.nextElementSibling ?? item.previousElementSibling;
  const next = neighbour?.querySelector<HTMLElement>('button:last-of-type') ?? another();

  next?.focus();
}
