// SPDX-License-Identifier: Apache-2.0
// A table of functions that may have 100,000 rows. Only the rows in the window are rendered. So the
// table itself has the focus and says which row is the active one (aria-activedescendant): a row
// that has scrolled away is no element that could have the focus.
import type { TargetedKeyboardEvent } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { listenForMenu, type Asked } from '../flame/menu';
import { termOf, type FunctionRow } from '../profile/table';
import type { Change, State } from '../state/state';
import './function_grid.css';
import { Head, Row } from './function_row';
import { useLatest } from './latest';
import { useMenu, type Point } from './menu';
import { ROW_PX, useRows } from './rows';
import type { Shown } from './shown';

const HEAD_PX = 30;
const PAGE_ROWS = 10;

interface Props {
  state: State;
  change: Change;
  shown: Shown;
  rows: FunctionRow[];
}

export function FunctionGrid({ state, change, shown, rows }: Props) {
  const { fn, sort, search, short } = state;
  const { element, first, end, reveal } = useRows(rows.length, HEAD_PX);
  const [activeRow, setActive] = useState(0); // the row that the keyboard is at
  const active = Math.max(0, Math.min(activeRow, rows.length - 1));
  const { open, menu } = useMenu({ state, change });
  const grid = useRef<HTMLTableElement>(null);
  const placed = useRef('');
  const asked = JSON.stringify([sort, fn, search]);
  const selected = rows.findIndex((row) => fn?.name === row.name && fn.kind === row.kind);
  const latest = useLatest({ rows, active, open });
  const choose = (row: FunctionRow): void =>
    change({ fn: { name: row.name, kind: row.kind }, search: termOf(row) });

  const onKey = (e: TargetedKeyboardEvent<HTMLElement>): void => {
    const to = rowOfKey(e.key, active, rows.length);

    if (e.target !== e.currentTarget || (to === null && e.key !== 'Enter')) return;
    e.preventDefault();
    if (to === null) return rows[active] && choose(rows[active]);
    setActive(to);
    reveal(to);
  };

  // newer values of the same functions leave the user in the place where they are
  useLayoutEffect(() => {
    if (placed.current === asked) return;
    placed.current = asked;
    setActive(Math.max(0, selected));
    reveal(Math.max(0, selected));
  }, [asked, selected, reveal]);
  useLayoutEffect(() => {
    const end = new AbortController();
    const openAt = (asked: Asked): boolean => {
      const { rows, active, open } = latest.current;
      const row = rows[asked ? rowAt(asked) : active];

      if (row) open({ ...row, canHide: true }, asked ?? belowActive(grid.current!));
      return row !== undefined;
    };

    listenForMenu(grid.current!, openAt, end.signal);
    return () => end.abort();
  }, []);
  return (
    <>
      <div class="table-window" ref={element}>
        <table
          id="table"
          ref={grid}
          // biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: ARIA in HTML has it
          role="grid"
          tabIndex={0}
          aria-rowcount={rows.length + 1}
          aria-activedescendant={active >= first && active < end ? `row-${active}` : undefined}
          onKeyDown={onKey}
        >
          <Head sort={sort} change={change} isDifference={shown.changeOf !== null} />
          <Spacer rows={first} />
          <tbody id="functions">
            {rows.slice(first, end).map((row, i) => (
              <Row
                key={`${row.kind} ${row.name}`}
                row={row}
                at={first + i}
                isActive={first + i === active}
                isSelected={first + i === selected}
                shown={shown}
                isShort={short}
                onChoose={() => choose(row)}
              />
            ))}
          </tbody>
          <Spacer rows={rows.length - end} />
        </table>
      </div>
      {menu}
    </>
  );
}

/** Stands for rows that are not in the window. */
const Spacer = ({ rows }: { rows: number }) => (
  <tbody aria-hidden="true">
    {rows > 0 && <tr style={{ height: `${rows * ROW_PX}px` }} />}
  </tbody>
);

/** Where a key moves the keyboard to; null: it does not. */
function rowOfKey(key: string, at: number, count: number): number | null {
  const to: Record<string, number> = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    PageDown: at + PAGE_ROWS,
    PageUp: at - PAGE_ROWS,
    Home: 0,
    End: count - 1,
  };

  return key in to ? Math.max(0, Math.min(to[key], count - 1)) : null;
}

function belowActive(grid: HTMLElement): Point {
  const { left, bottom } = (grid.querySelector('.active') ?? grid).getBoundingClientRect();

  return { x: left, y: bottom };
}

/** The row at a point of the window; -1: there is none. */
function rowAt({ x, y }: Point): number {
  const row = document.elementFromPoint(x, y)?.closest('tr[aria-rowindex]');

  return row ? Number(row.getAttribute('aria-rowindex')) - 2 : -1;
}
