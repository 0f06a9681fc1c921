// SPDX-License-Identifier: Apache-2.0
// The layers of the time line as a picture, by uPlot.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Series } from '../api/types';
import { roundSteps } from '../profile/values';
import type { Layer } from './steps';

const HEIGHT_PX = 110;
/** The room for values, and for the half of the last time; style.css has the same. */
const AXIS_PX = 72;
const RIGHT_PX = 28;
/** Of texts, and of the lines behind the layers. */
const LIGHT = { text: '#222', line: '#ddd' };
const DARK = { text: '#e4e4e4', line: '#444' };

export const colourOf = (layer: number, { name }: Layer): string =>
  name === 'others' ? 'hsl(0 0% 70%)' : `hsl(${(205 + 137 * layer) % 360} 55% 62%)`;

/** Times of the axis, which are so many seconds apart. */
function clocks(times: number[], step: number): string[] {
  const isDay = step >= 86400;
  const format = new Intl.DateTimeFormat(undefined, {
    ...(times[times.length - 1] - times[0] > 86400 && { month: 'short', day: 'numeric' }),
    ...(!isDay && { hour: 'numeric', minute: '2-digit' }),
    ...(step < 60 && { second: '2-digit' }),
  });

  return times.map((t) => format.format(t * 1000));
}

interface Actions {
  /** A value in words, with its unit. */
  value: (value: number) => string;
  /** The pointer is at a step; null: it has left. */
  onHover: (step: number | null) => void;
  /** The user has drawn over a stretch of time. */
  onSelect: (from: number, to: number) => void;
}

export class Chart {
  private plot: uPlot | null = null;
  private inks = LIGHT;
  private readonly resized: ResizeObserver;

  constructor(
    private readonly element: HTMLElement,
    private readonly actions: Actions,
  ) {
    this.resized = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.resized.observe(element);
  }

  destroy(): void {
    this.resized.disconnect();
    this.plot?.destroy();
  }

  /** How many pixels wide the steps are together. */
  width(): number {
    return Math.max(1, this.element.clientWidth - AXIS_PX - RIGHT_PX);
  }

  show(series: Series, layers: Layer[]): void {
    const { start, step, steps } = series;
    const times = Array.from({ length: steps + 1 }, (_, i) => start + i * step);
    // the greatest first, because each layer hides what is below it
    const drawn = layers.map((layer, i) => ({ layer, colour: colourOf(i, layer) })).reverse();

    this.plot?.destroy();
    this.plot = new uPlot(
      {
        ...this.size(),
        padding: [8, RIGHT_PX, 0, 0],
        legend: { show: false },
        scales: {
          x: { time: true, range: [times[0], times[steps]] },
          y: { range: (_, __, max) => [0, max || 1] },
        },
        axes: [
          {
            ...this.lines(),
            size: 30,
            space: 100,
            values: (_, all, __, ___, step) => clocks(all, step),
          },
          {
            ...this.lines(),
            size: AXIS_PX,
            incrs: roundSteps(series.unit),
            values: (_, all) => all.map((v) => this.actions.value(v)),
          },
        ],
        series: [
          {},
          ...drawn.map(({ colour }) => ({
            stroke: colour,
            fill: colour,
            paths: uPlot.paths.stepped!({ align: 1 }),
            points: { show: false },
          })),
        ],
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
        hooks: {
          setCursor: [(u) => this.actions.onHover(this.stepAt(u, series))],
          setSelect: [(u) => this.select(u)],
        },
      },
      [times, ...drawn.map(({ layer: { tops } }) => [...tops, tops[steps - 1]])],
      this.element,
    );
  }

  /** Whether the page is dark; the next picture follows. */
  setDark(isDark: boolean): void {
    this.inks = isDark ? DARK : LIGHT;
  }

  private lines() {
    const line = { stroke: this.inks.line, width: 1 };

    return { stroke: this.inks.text, grid: line, ticks: line };
  }

  private size(): { width: number; height: number } {
    return { width: this.element.clientWidth, height: HEIGHT_PX };
  }

  private stepAt(u: uPlot, { start, step, steps }: Series): number | null {
    const { left = -1 } = u.cursor;

    if (left < 0) return null;
    return Math.min(steps - 1, Math.max(0, Math.floor((u.posToVal(left, 'x') - start) / step)));
  }

  private select(u: uPlot): void {
    const { left, width } = u.select;

    if (width === 0) return;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.actions.onSelect(u.posToVal(left, 'x'), u.posToVal(left + width, 'x'));
  }
}
