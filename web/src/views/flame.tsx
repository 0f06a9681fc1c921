// SPDX-License-Identifier: Apache-2.0
// A flame graph (flame/) in a view, and the menu of its frames.
import { useContext, useLayoutEffect, useRef } from 'preact/hooks';
import { FlameGraph, type Changes, type Options } from '../flame/flame';
import type { Columns } from '../profile/columns';
import { pathTo } from '../profile/path';
import { foldedLine } from '../profile/stack';
import { matcher } from '../profile/table';
import { frameSentence } from '../words/frames';
import { useLatest } from './latest';
import { useMenu, type Target } from './menu';
import { IsDark } from './use_theme';
import type { ViewProps } from './view';

interface Props extends Pick<ViewProps, 'state' | 'change'> {
  id: string;
  columns: Columns;
  value: (value: number) => string; // in words
  /** How its frames have changed; null: it is no difference. */
  changesOf: (columns: Columns) => Changes | null;
  options: Partial<Options>; // the same object as long as they are the same
  /** The user is told what the pointer or the keyboard is at; '': nothing. */
  onSay: (text: string) => void;
  /** The sum of what the search has found. */
  onFound?: (sum: number) => void;
  /** Whether the state has this graph's zoom. */
  isMain?: boolean;
  /** What its menu offers: a subtree as the whole, and to hide a function. */
  canFocus?: boolean;
  canHide?: boolean;
}

export function Flame(props: Props) {
  const { id, state, change, value, columns, changesOf, options, isMain = false } = props;
  const { search, short, colours, zoom } = state;
  const isDark = useContext(IsDark);
  const element = useRef<HTMLDivElement>(null);
  const graph = useRef<FlameGraph | null>(null);
  const { open, menu } = useMenu({ state, change });
  const tell = (): void => {
    props.onSay('');
    props.onFound?.(graph.current!.foundSum());
  };
  const latest = useLatest({ ...props, open, tell });

  useLayoutEffect(() => {
    const made = new FlameGraph(element.current!, {
      about: frameSentence,
      onHover: (at) => latest.current.onSay(at ? made.text(at) : ''),
      onSelect: (node) => latest.current.onSay(made.text({ node, rest: 0 })),
      onZoom: (node) => {
        if (latest.current.isMain) latest.current.change({ zoom: made.path(node) });
      },
      onMenu: (node, at) => latest.current.open(targetOf(latest.current, node), at),
    });

    graph.current = made;
    return () => made.destroy();
  }, []);
  useLayoutEffect(
    () => graph.current!.set({ ...options, short, value, colours, dark: isDark }),
    [options, short, value, colours, isDark],
  );
  useLayoutEffect(() => {
    const at = isMain ? latest.current.state.zoom : undefined;

    graph.current!.show(columns, changesOf(columns), at);
    latest.current.tell();
  }, [columns, changesOf, isMain]);
  useLayoutEffect(() => {
    graph.current!.search(search ? matcher(search) : null);
    latest.current.tell();
  }, [search]);
  useLayoutEffect(() => {
    if (isMain) graph.current!.zoomTo(zoom);
  }, [zoom, isMain]);
  return (
    <>
      <div id={id} class="chart" ref={element} />
      {menu}
    </>
  );
}

function targetOf({ columns, options, canFocus, canHide = false }: Props, node: number): Target {
  const { fn, functions } = columns;

  return {
    name: functions.names[fn[node]],
    kind: functions.kinds[fn[node]],
    source: functions.source(fn[node]),
    stack: foldedLine(columns, node, options.callers),
    path: canFocus && node > 0 ? pathTo(columns, node) : undefined,
    canHide: canHide && functions.kinds[fn[node]] !== 'root',
  };
}
