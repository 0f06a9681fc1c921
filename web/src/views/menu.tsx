// SPDX-License-Identifier: Apache-2.0
// What can be done with a function or with a frame: a menu where the user asks for it.
import { createContext } from 'preact';
import {
  useCallback, useContext, useEffect, useLayoutEffect, useRef, useState,
} from 'preact/hooks';
import { isFunction } from '../profile/columns';
import type { FunctionId } from '../profile/folds';
import { inert } from '../profile/names';
import { termOf } from '../profile/table';
import { cpuUsers } from '../state/cpu_users';
import type { Change, State } from '../state/state';
import { copy } from './copy';
import './menu.css';

/** What the menu is about. */
export interface Target extends FunctionId {
  source: string; // "file:line", '' if not known
  stack?: string; // of a frame: its stack as a line
  path?: string[]; // of a frame that can be the whole: where it is
  canHide: boolean;
}

/** A point of the window, in CSS pixels. */
export interface Point {
  x: number;
  y: number;
}

/** The nodes that the selection ran on. */
export const Nodes = createContext<string[]>([]);

interface Props {
  state: State;
  change: Change;
}

interface Item {
  title: string;
  run: () => void;
}

const SAID_MS = 4000;

/** `open` shows the menu, and `menu` is where it is rendered. */
export function useMenu({ state, change }: Props) {
  const [asked, setAsked] = useState<{ target: Target; at: Point } | null>(null);
  const [said, setSaid] = useState('');
  const nodes = useContext(Nodes);
  const open = useCallback((target: Target, at: Point) => setAsked({ target, at }), []);
  const close = useCallback(() => setAsked(null), []);
  const copied = async (what: string, text: string): Promise<void> =>
    setSaid((await copy(text)) ? `${what} is copied.` : 'The browser does not let a page copy.');

  useEffect(() => {
    const timer = said && setTimeout(() => setSaid(''), SAID_MS);
    return () => clearTimeout(timer || undefined);
  }, [said]);
  return {
    open,
    menu: (
      <>
        {asked && (
          <Menu
            name={asked.target.name}
            at={asked.at}
            items={itemsOf(asked.target, state, nodes, change, copied)}
            onClose={close}
          />
        )}
        <p role="status" class="said">{said}</p>
      </>
    ),
  };
}

function itemsOf(
  target: Target,
  state: State,
  nodes: string[],
  change: Change,
  copied: (what: string, text: string) => Promise<void>,
): Item[] {
  const { name, kind, source, stack, path, canHide } = target;
  const fn = { name, kind };
  const items: (Item | false)[] = [
    kind === 'wait: runqueue' && {
      title: 'Who had the CPUs',
      run: () => change(cpuUsers(state, nodes), 'push'),
    },
    isFunction(kind) && {
      title: 'Callers and callees',
      run: () => change({ fn, view: 'sandwich' }),
    },
    path !== undefined && {
      title: 'Show only this subtree',
      run: () => change({ focus: path, zoom: [] }, 'push'),
    },
    canHide && {
      title: 'Hide this function',
      run: () => change({ hidden: [...state.hidden, fn] }, 'push'),
    },
    canHide && {
      title: 'Leave out all stacks with it',
      run: () => change({ without: [...state.without, fn] }, 'push'),
    },
    { title: 'Search for it', run: () => change({ search: termOf(fn) }) },
    isFunction(kind) && {
      title: 'Show it in the table',
      run: () => change({ fn, view: 'table', search: '' }),
    },
    { title: 'Copy its name', run: () => void copied('The name', name) },
    stack !== undefined && { title: 'Copy the stack', run: () => void copied('The stack', stack) },
    source !== '' && {
      title: `Copy ${inert(source)}`,
      run: () => void copied('The place in the source', source),
    },
  ];

  return items.filter((item) => item !== false);
}

interface MenuProps {
  name: string;
  at: Point;
  items: Item[];
  onClose: () => void;
}

function Menu({ name, at, items, onClose }: MenuProps) {
  const element = useRef<HTMLDivElement>(null);
  const onKey = (e: KeyboardEvent): void => {
    if (e.key === 'Escape' || e.key === 'Tab') onClose();
    else if (!walk(element.current!, e.key)) return;
    e.preventDefault();
    e.stopPropagation();
  };

  useLayoutEffect(() => place(element.current!, at), [at]);
  useLayoutEffect(() => {
    const before = document.activeElement;

    buttonsOf(element.current!)[0].focus();
    return () => before instanceof HTMLElement && before.focus({ preventScroll: true });
  }, []);
  useEffect(() => closeOutside(element.current!, onClose), [onClose]);
  return (
    <div
      ref={element}
      class="menu"
      role="menu"
      tabIndex={-1}
      aria-label={`what to do with ${inert(name)}`}
      onKeyDown={onKey}
      onContextMenu={(e) => e.preventDefault()}
    >
      <div class="menu-name" aria-hidden="true">{inert(name)}</div>
      {items.map(({ title, run }) => (
        <button
          key={title}
          role="menuitem"
          tabIndex={-1}
          onClick={() => {
            onClose();
            run();
          }}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

const buttonsOf = (menu: HTMLElement): HTMLButtonElement[] => [...menu.querySelectorAll('button')];

/** Moves the focus in a menu. Returns whether the key does that. */
function walk(menu: HTMLElement, key: string): boolean {
  const buttons = buttonsOf(menu);
  const at = buttons.findIndex((button) => button === document.activeElement);
  const next: Record<string, number> = {
    ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1,
  };

  if (!(key in next)) return false;
  buttons.at(next[key] % buttons.length)!.focus();
  return true;
}

/** Puts a menu at a point, and in the window. */
function place(menu: HTMLElement, { x, y }: Point): void {
  const { width, height } = menu.getBoundingClientRect();

  menu.style.left = `${Math.max(0, Math.min(x, innerWidth - width))}px`;
  menu.style.top = `${Math.max(0, Math.min(y, innerHeight - height))}px`;
}

/** Closes a menu when the user does something elsewhere. */
function closeOutside(menu: HTMLElement, close: () => void): () => void {
  const end = new AbortController();
  const options = { capture: true, signal: end.signal };

  addEventListener('pointerdown', (e) => menu.contains(e.target as Node) || close(), options);
  addEventListener('wheel', close, options);
  addEventListener('blur', close, { signal: end.signal });
  return () => end.abort();
}
