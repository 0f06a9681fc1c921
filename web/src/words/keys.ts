// SPDX-License-Identifier: Apache-2.0
// The one table of keys: the page acts by it, and `?` shows it.

export interface Key {
  key: string; // KeyboardEvent.key
  action: string;
  text: string;
}

/** They work wherever the user does not type. */
export const pageKeys = [
  { key: '?', action: 'keys', text: 'shows these keys' },
  { key: '/', action: 'search', text: 'goes to the search for functions' },
  { key: 'g', action: 'graph', text: 'shows the flame graph and goes to its frames' },
  { key: 't', action: 'table', text: 'shows the table' },
  { key: 's', action: 'sandwich', text: 'shows callers and callees of the chosen function' },
  { key: 'b', action: 'breakdown', text: 'shows which pods, images or nodes have it' },
  { key: 'r', action: 'request', text: 'shows the one request' },
  { key: 'u', action: 'reload', text: 'asks the hub again' },
  { key: 'o', action: 'zoom-out', text: 'zooms the time out to three times as long' },
  { key: 'p', action: 'previous', text: 'shows the time before, as long as this one' },
  { key: 'l', action: 'share', text: 'copies a link that shows the same time to others' },
  { key: 'd', action: 'theme', text: 'switches between light and dark' },
] as const satisfies Key[];

export type KeyAction = (typeof pageKeys)[number]['action'];

/** They work while the flame graph has the focus. */
export const graphKeys: Key[] = [
  { key: 'ArrowUp', action: '', text: 'selects the caller, or the greatest callee, as it lies' },
  { key: 'ArrowDown', action: '', text: 'selects the greatest callee, or the caller, as it lies' },
  { key: 'ArrowLeft', action: '', text: 'selects the frame to the left of the same caller' },
  { key: 'ArrowRight', action: '', text: 'selects the frame to the right of the same caller' },
  { key: 'Home', action: '', text: 'selects the outermost frame' },
  { key: 'Enter', action: '', text: 'zooms to the selected frame' },
  { key: 'Escape', action: '', text: 'zooms out' },
  { key: 'ContextMenu', action: '', text: 'opens the menu of the frame; so do Shift and F10' },
];

/** What stands on the key. */
export const keyLabel = (key: string): string =>
  ({ ArrowUp: '↑', ArrowDown: '↓', ArrowLeft: '←', ArrowRight: '→' })[key] ?? key;

type Press = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey'>;

/** What a press of a key asks for; null: nothing. With Ctrl, Meta or Alt it is the browser's. */
export function actionOf(press: Press): KeyAction | null {
  if (press.ctrlKey || press.metaKey || press.altKey) return null;
  return pageKeys.find((k) => k.key === press.key)?.action ?? null;
}
