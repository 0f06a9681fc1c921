// SPDX-License-Identifier: Apache-2.0
// The flame graph (flame/), with the line above it that says what the pointer or the focus is on.
import { useContext, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { FlameGraph, type Path } from '../flame/flame';
import { matcher } from '../profile/table';
import { formatValue, percent } from '../profile/values';
import { frameSentence } from '../words/frames';
import { useLatest } from './latest';
import { Legend } from './legend';
import type { Shown } from './shown';
import { Table } from './table';
import { IsDark } from './use_theme';
import type { ViewProps } from './view';

const pathOf = (names: string[]): Path => names.map((name) => [name]);

/** The graph, and its functions in a table below. */
export function Graph(props: ViewProps) {
  const { columns } = props.shown;

  return (
    <>
      <Flame {...props} />
      {columns && <Legend columns={columns} />}
      <Table {...props} />
    </>
  );
}

interface FlameProps extends Pick<ViewProps, 'state' | 'change'> {
  shown: Pick<Shown, 'columns' | 'unit' | 'total'>;
}

export function Flame({ state, change, shown: { columns, unit, total } }: FlameProps) {
  const element = useRef<HTMLDivElement>(null);
  const graph = useRef<FlameGraph | null>(null);
  const isDark = useContext(IsDark);
  const { search, short, upward, zoom } = state;
  const latest = useLatest({ change, unit, zoom });
  const [frame, setFrame] = useState('');
  const [found, setFound] = useState(0);

  useLayoutEffect(() => {
    const made = new FlameGraph(element.current!, {
      value: (value) => formatValue(value, latest.current.unit),
      about: frameSentence,
      onHover: (at) => setFrame(at ? made.text(at) : ''),
      onSelect: (node) => setFrame(made.text({ node, rest: 0 })),
      onZoom: (node) => latest.current.change({ zoom: made.path(node).map(([name]) => name) }),
    });

    graph.current = made;
    return () => made.destroy();
  }, []);
  useLayoutEffect(() => graph.current!.set({ short, upward, dark: isDark }), [
    short, upward, isDark,
  ]);
  useLayoutEffect(() => {
    graph.current!.show(columns, null, pathOf(latest.current.zoom));
    setFrame('');
    setFound(graph.current!.foundSum());
  }, [columns]);
  useLayoutEffect(() => {
    graph.current!.search(search ? matcher(search) : null);
    setFrame('');
    setFound(graph.current!.foundSum());
  }, [search]);
  useLayoutEffect(() => graph.current!.zoomTo(pathOf(zoom)), [zoom]);
  return (
    <>
      <div id="details" class="muted">
        {frame || (search && `found: ${formatValue(found, unit)} (${percent(found, total)})`) ||
          '\u00a0'}
      </div>
      <div id="chart" ref={element} />
    </>
  );
}
