// SPDX-License-Identifier: Apache-2.0
// The time line: values over time, what is missing, when processes began, and other times to
// choose.
import type { Series } from '../api/types';
import { inert } from '../profile/names';
import { formatValue } from '../profile/values';
import { Chart, colourOf } from './chart';
import { layers, marks, type Layer, type Mark } from './steps';

const MARK_PX = 14; // style.css has the same

/** A tag by whose values the time line can be split. */
export interface Tag {
  tag: string;
  label: string;
}

interface Actions {
  onGroup: (tag: string) => void;
  /** Another time: Unix seconds. */
  onTimes: (from: number, to: number) => void;
  /** A time that is three times as long. */
  onZoomOut: () => void;
  /** The user has chosen a value of the tag. */
  onNarrow: (tag: string, value: string) => void;
  /** Unix seconds by the hub's clock. */
  now: () => number;
}

const earlier: [seconds: number, text: string][] = [
  [3600, 'hour'],
  [86400, 'day'],
  [7 * 86400, 'week'],
];

function add<K extends keyof HTMLElementTagNameMap>(
  to: HTMLElement,
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);

  to.append(element);
  return element;
}

export class Timeline {
  private readonly by: HTMLSelectElement;
  private readonly marksRow: HTMLElement;
  private readonly picture: HTMLElement;
  private readonly said: HTMLElement;
  private readonly legend: HTMLElement;
  private readonly table: HTMLTableElement;
  private readonly chart: Chart;
  private readonly resized: ResizeObserver;
  private series: Series | null = null;
  private layers: Layer[] = [];
  private times: [number, number] = [0, 0];

  constructor(
    private readonly element: HTMLElement,
    private readonly actions: Actions,
  ) {
    const tools = add(element, 'div', { className: 'timeline-tools' });
    const label = add(tools, 'label', { textContent: 'over time, by ' });

    this.by = add(label, 'select', { id: 'by' });
    this.by.addEventListener('change', () => actions.onGroup(this.by.value));
    this.button(tools, 'zoom out', 'three times as long', () => actions.onZoomOut());
    for (const [seconds, unit] of earlier)
      this.button(tools, `previous ${unit}`, `the same time, one ${unit} earlier`, () =>
        this.choose(this.times.map((t) => t - seconds)),
      );
    this.marksRow = add(element, 'div', { className: 'timeline-marks', role: 'toolbar' });
    this.marksRow.ariaLabel = 'losses and starts of processes: the arrow keys walk';
    this.marksRow.addEventListener('keydown', (e) => this.walk(e));
    this.picture = add(element, 'div', { className: 'timeline-chart', role: 'img' });
    const foot = add(element, 'div', { className: 'timeline-foot' });
    const words = add(foot, 'div', { className: 'timeline-words' });
    this.said = add(words, 'p', { className: 'timeline-said muted', role: 'status' });
    this.legend = add(words, 'div', { className: 'timeline-legend' });
    const details = add(foot, 'details', { className: 'timeline-table' });
    add(details, 'summary', { textContent: 'the time line as a table' });
    this.table = add(details, 'table');
    details.addEventListener('toggle', () => this.showTable());
    this.chart = new Chart(this.picture, {
      value: (v) => this.value(v),
      onHover: (step) => this.say(step === null ? '' : this.stepText(step)),
      onSelect: (from, to) => this.choose([from, to]),
    });
    this.resized = new ResizeObserver(() => this.showMarks());
    this.resized.observe(this.picture);
  }

  /** Removes all that it has added to its element. */
  destroy(): void {
    this.resized.disconnect();
    this.chart.destroy();
    this.element.replaceChildren();
  }

  /** Shows the values of a stretch of time, by a tag; '': all together. */
  show(series: Series, times: [number, number], tag: string): void {
    this.series = series;
    this.times = times;
    this.layers = layers(series, tag !== '');
    this.picture.ariaLabel = this.summary();
    this.chart.show(series, this.layers);
    this.say('');
    this.showMarks();
    this.showLegend(tag);
    this.showTable();
  }

  /** Draws for a dark page, or for a light one. */
  setDark(isDark: boolean): void {
    this.chart.setDark(isDark);
    if (this.series) this.chart.show(this.series, this.layers);
  }

  /** Offers tags, whose labels are inert, and of which one is chosen; '': none. */
  offer(tags: Tag[], tag: string): void {
    const all = [{ tag: '', label: 'all together' }, ...tags];
    const offered = [...this.by.options].map((o) => o.value);

    // changing an open list would close it
    if (all.map((t) => t.tag).join() !== offered.join())
      this.by.replaceChildren(...all.map((t) => new Option(t.label, t.tag)));
    this.by.value = tag;
  }

  private button(to: HTMLElement, textContent: string, title: string, act: () => void): void {
    add(to, 'button', { textContent, title }).addEventListener('click', act);
  }

  /** Lets the page show another time, of whole seconds and not later than now. */
  private choose([from, to]: number[]): void {
    const end = Math.min(Math.ceil(to), this.actions.now());

    this.actions.onTimes(Math.min(Math.floor(from), end - 1), end);
  }

  // ---- words ----

  /** Says what the user points at; '': nothing, so how long a bar of the picture is. */
  private say(text: string): void {
    const bar = this.series && formatValue(this.series.step * 1e6, 'us').replace(/\.0+ /, ' ');

    this.said.textContent = text || (bar ? `each bar is ${bar}` : '\u00a0');
  }

  private value(v: number): string {
    return formatValue(v, this.series!.unit);
  }

  private clock(seconds: number): string {
    const [from, to] = this.times;
    const date = new Date(seconds * 1000);

    return to - from > 86400 ? date.toLocaleString() : date.toLocaleTimeString();
  }

  private stepClock(step: number): string {
    const { start, step: seconds } = this.series!;

    return `${this.clock(start + step * seconds)} to ${this.clock(start + (step + 1) * seconds)}`;
  }

  private stepText(step: number): string {
    const parts = this.layers.map((l) => `${inert(l.name)} ${this.value(l.values[step])}`);
    const sum = this.value(this.layers.at(-1)?.tops[step] ?? 0);

    return `${this.stepClock(step)}: ${sum}${parts.length > 1 ? ` (${parts.join(', ')})` : ''}`;
  }

  private summary(): string {
    const { steps, step } = this.series!;
    const tops = this.layers.at(-1)?.tops ?? [];
    const most = tops.reduce((best, v, i) => (v > tops[best] ? i : best), 0);

    return (
      `values of ${steps} steps of ${step} s` +
      (tops.length ? `; the greatest is ${this.value(tops[most])}, ${this.stepClock(most)}` : '')
    );
  }

  // ---- marks ----

  private showMarks(): void {
    if (!this.series) return;
    const { steps, start, step } = this.series;
    const width = Math.max(1, Math.ceil((MARK_PX * steps) / this.chart.width()));
    const all = marks(this.series, width, (s) => this.clock(s));
    const focused = [...this.marksRow.children].indexOf(document.activeElement!);

    this.marksRow.replaceChildren();
    this.marksRow.hidden = all.length === 0;
    for (const mark of all) {
      const percent = (seconds: number): string => `${(100 * seconds) / (steps * step)}%`;
      const { style } = this.mark(mark);

      style.left = percent((mark.from + mark.to) / 2 - start);
      style.width = `max(${MARK_PX}px, ${percent(mark.to - mark.from)} - 2px)`;
    }
    this.marksRow.firstElementChild?.setAttribute('tabindex', '0');
    (this.marksRow.children[focused] as HTMLElement | undefined)?.focus();
  }

  /** Its sentence is said on hover and focus. A click shows its time. */
  private mark({ from, to, isLoss, text }: Mark): HTMLElement {
    const button = add(this.marksRow, 'button', {
      className: isLoss ? 'timeline-loss' : 'timeline-start',
      textContent: isLoss ? '!' : '+',
      ariaLabel: text,
      tabIndex: -1,
    });

    for (const event of ['mouseenter', 'focus'])
      button.addEventListener(event, () => this.say(text));
    button.addEventListener('mouseleave', () => this.say(''));
    button.addEventListener('click', () => this.choose([from, to]));
    return button;
  }

  private walk({ key }: KeyboardEvent): void {
    const at = document.activeElement;
    const next = key === 'ArrowRight' ? at?.nextElementSibling : at?.previousElementSibling;

    if (key.startsWith('Arrow') && next instanceof HTMLElement) next.focus();
  }

  // ---- legend, table ----

  private showLegend(tag: string): void {
    this.legend.replaceChildren();
    if (!tag) return;
    this.layers.forEach((layer, i) => {
      const { value } = layer;
      const entry = add(this.legend, value ? 'button' : 'span', {
        textContent: inert(layer.name),
      });

      entry.style.borderLeft = `12px solid ${colourOf(i, layer)}`;
      if (!value) return;
      entry.title = 'choose it';
      entry.addEventListener('click', () => this.actions.onNarrow(tag, value));
    });
  }

  /** Steps with a value, of which each can be chosen. Made when the table is open. */
  private showTable(): void {
    this.table.replaceChildren();
    if (!this.series || !(this.table.parentElement as HTMLDetailsElement).open) return;
    const { start, step, steps } = this.series;
    const head = this.table.createTHead().insertRow();
    const body = this.table.createTBody();
    const names = this.layers.length > 1 ? this.layers.map((l) => inert(l.name)) : [];

    for (const textContent of ['Time', 'Value', ...names])
      add(head, 'th', { textContent, scope: 'col' });
    for (let i = 0; i < steps; i++) {
      const sum = this.layers.at(-1)?.tops[i];
      const from = start + i * step;

      if (!sum) continue;
      const row = body.insertRow();
      const button = add(row.insertCell(), 'button', { textContent: this.stepClock(i) });
      button.addEventListener('click', () => this.choose([from, from + step]));
      for (const v of [sum, ...(names.length ? this.layers.map((l) => l.values[i]) : [])])
        row.insertCell().textContent = this.value(v);
    }
  }
}
