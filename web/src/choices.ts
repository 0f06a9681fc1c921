// SPDX-License-Identifier: Apache-2.0
// What the page shows: a row of choices. Their values come from the data; the hash of the address
// keeps what is chosen.
import * as api from './api';

interface Dimension {
  tag: string;
  label: string;
  events?: string[]; // only these have it
  unset?: string; // the text of the choice of no value
  rare?: boolean; // shown where there is something to choose
}

/** Of all events. Workload comes first, because a person on call knows it. */
const common: Dimension[] = [
  { tag: 'pod_group', label: 'Workload' },
  { tag: 'pod_cluster', label: 'Cluster' },
  { tag: 'pod_ns', label: 'Namespace' },
  { tag: 'pod', label: 'Pod' },
  { tag: 'app_service', label: 'Process' },
  { tag: 'pod_node', label: 'Node' },
  { tag: 'trace_id', label: 'Trace', rare: true },
];

/** More tags by whose values the time line can be split, which all events have. */
const more: Dimension[] = [
  { tag: 'container', label: 'Container' },
  { tag: 'image', label: 'Image' },
  { tag: 'thread', label: 'Thread' },
];

/** The most values that a choice offers. */
const MAX_VALUES = 500;

const ranges: [string, string][] = [
  ['300', 'last 5 minutes'],
  ['900', 'last 15 minutes'],
  ['3600', 'last hour'],
  ['21600', 'last 6 hours'],
  ['86400', 'last day'],
  ['259200', 'last 3 days'],
  ['custom', 'from … to …'],
];

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Unix seconds in the form of a datetime-local input. */
const localTime = (s: number): string =>
  utc(s - new Date(s * 1000).getTimezoneOffset() * 60).slice(0, 19);
/** Unix seconds in the form of the address: UTC, so that a link means the same time everywhere. */
const utc = (s: number): string => `${new Date(s * 1000).toISOString().slice(0, 19)}Z`;

export class Choices {
  private state = new URLSearchParams(location.hash.slice(1));
  private dimensions = common;

  constructor(private readonly changed: () => void) {
    const bar = element('choices');

    for (const d of common) bar.append(this.control(d.label, this.picker(d.tag)));
    bar.append(this.control('Event', this.picker('profile_event_type')));
    bar.append(this.control('Time', this.rangePicker()));
    for (const id of ['from', 'to', 'grown_from', 'grown_to']) {
      const input = element<HTMLInputElement>(id);
      input.addEventListener('change', () =>
        this.set(id, input.value && utc(Date.parse(input.value) / 1000)),
      );
    }
    const growth = element<HTMLInputElement>('growth');
    growth.addEventListener('change', () => this.set('growth', growth.checked ? '1' : ''));
    window.addEventListener('hashchange', () => {
      this.state = new URLSearchParams(location.hash.slice(1));
      this.showState();
      this.changed();
    });
    this.showState();
  }

  /** Adds the choices of tags that only some events have. */
  offer(tags: api.TagOfEvents[]): void {
    const added = tags.map(({ name, title, ...t }) => ({ tag: name, label: title, ...t }));
    const last = element('choice-trace_id').parentElement!;

    for (const d of added) last.before(this.control(d.label, this.picker(d.tag)));
    this.dimensions = [...common, ...added];
    this.showState();
  }

  /** Chooses what the address says, before the other values are known. */
  private showState(): void {
    const event: Dimension = { tag: 'profile_event_type', label: '' };

    for (const { tag, rare, unset } of [...this.dimensions, event]) {
      const picker = element<HTMLSelectElement>(`choice-${tag}`);
      const chosen = this.chosen(tag);

      if (rare) picker.parentElement!.hidden = !chosen && picker.options.length < 2;
      if (![...picker.options].some((o) => o.value === chosen))
        picker.add(new Option(chosen || (unset ?? 'all'), chosen), 0);
      picker.value = picker.title = chosen;
    }
    element<HTMLSelectElement>('choice-range').value = this.range();
    element<HTMLInputElement>('growth').checked = this.state.has('growth');
    this.showControls();
  }

  private chosen(tag: string): string {
    return tag === 'profile_event_type' ? this.event() : (this.state.get(tag) ?? '');
  }

  private event(): string {
    return this.state.get('profile_event_type') || 'on-cpu';
  }

  /** Whether values are of a moment (live memory), not of a stretch of time. */
  private isSnapshot(): boolean {
    return this.event().endsWith('-inuse');
  }

  /** The two times of the leak view; null: it is not chosen. */
  growth(): [number, number] | null {
    const [start, end] = this.interval();

    return this.isSnapshot() && this.state.has('growth')
      ? [this.at('grown_from', start), this.at('grown_to', end)]
      : null;
  }

  selection(): api.Selection {
    const [time_start, time_end] = this.interval();

    return {
      profile_event_type: this.event(),
      app_service: this.state.get('app_service') ?? '',
      tag_filter: this.filter(),
      time_start,
      time_end,
    };
  }

  /** The stretch of time that the page shows, or that lies between the times of the leak view. */
  times(): [number, number] {
    const times = this.growth();

    return times ? [Math.min(...times), Math.max(...times)] : this.interval();
  }

  /** The same with the time of the snapshots of the leak view. */
  span(): api.Selection {
    const [from, time_end] = this.times();
    const time_start = this.growth() ? from - api.SNAPSHOT_S : from;

    return { ...this.selection(), time_start, time_end };
  }

  /** Shows another time, to which the address is bound. The browser goes back to the one before. */
  setTimes(from: number, to: number): void {
    const names = this.growth() ? ['grown_from', 'grown_to'] : ['from', 'to'];

    if (!this.growth()) this.state.set('range', 'custom');
    [from, to].forEach((t, i) => this.state.set(names[i], utc(t)));
    history.pushState(null, '', `#${this.state}`);
    this.showState();
    this.changed();
  }

  /** The tags by whose values the time line can be split, and the chosen one; '': none. */
  groupings(): { tags: Dimension[]; tag: string } {
    const tags = [...this.ofEvent().filter((d) => !d.rare), ...more];
    const tag = this.state.get('by') ?? '';

    return { tags, tag: tags.some((d) => d.tag === tag) ? tag : '' };
  }

  /** Splits the time line by another tag, which changes nothing else. */
  group(tag: string): void {
    this.keep('by', tag);
  }

  has(tag: string): boolean {
    return this.dimensions.some((d) => d.tag === tag);
  }

  /** Fills every choice with the values that the data has for the other choices. */
  async refresh(signal: AbortSignal): Promise<void> {
    const all = [...this.ofEvent().map((d) => d.tag), 'profile_event_type'];

    this.showControls();
    const found = await api.choices(all, this.span(), MAX_VALUES, signal);
    for (const tag of all) this.fill(tag, found[tag] ?? { values: [], truncated: false });
  }

  /** The words that a link's template may have; '' if nothing is chosen. */
  words(): Record<string, string> {
    const [start, end] = this.interval();
    const chosen = (tag: string): string => this.state.get(tag) ?? '';

    return {
      trace_id: chosen('trace_id'), pod_ns: chosen('pod_ns'), pod: chosen('pod'),
      start_ms: String(start * 1000), end_ms: String(end * 1000),
    };
  }

  private interval(): [number, number] {
    const now = Math.floor(Date.now() / 1000);

    if (this.range() === 'custom') return [this.at('from', now - 900), this.at('to', now)];
    return [now - Number(this.range()), now];
  }

  private range(): string {
    const range = this.state.get('range');

    return ranges.find(([value]) => value === range)?.[0] ?? '900';
  }

  /** A chosen time in Unix seconds. */
  private at(id: string, otherwise: number): number {
    const t = Date.parse(this.state.get(id) ?? '');

    return Number.isNaN(t) ? otherwise : Math.floor(t / 1000);
  }

  private ofEvent(): Dimension[] {
    return this.dimensions.filter((d) => !d.events || d.events.includes(this.event()));
  }

  private filter(): string {
    return this.ofEvent()
      .filter((d) => d.tag !== 'app_service' && this.state.get(d.tag))
      .map((d) => `${d.tag}='${this.state.get(d.tag)!.replace(/[\\']/g, '\\$&')}'`)
      .join(' AND ');
  }

  set(key: string, value: string): void {
    if (key === 'range' && value === 'custom') this.keepInterval();
    this.keep(key, value);
    this.showControls();
    this.changed();
  }

  /** Lets the address have a value. */
  private keep(key: string, value: string): void {
    if (value) this.state.set(key, value);
    else this.state.delete(key);
    history.replaceState(null, '', `#${this.state}`);
  }

  /** Sets "from … to …" to the time that the page shows. */
  private keepInterval(): void {
    this.interval().forEach((t, i) => {
      if (!this.state.get(['from', 'to'][i])) this.state.set(['from', 'to'][i], utc(t));
    });
  }

  private showControls(): void {
    const times = this.growth();
    const custom = this.range() === 'custom';

    element('custom').hidden = !custom;
    element('growth-choice').hidden = !this.isSnapshot();
    element('growth-times').hidden = !times;
    if (custom) this.showTimes(['from', 'to'], this.interval());
    if (times) this.showTimes(['grown_from', 'grown_to'], times);
    for (const d of this.dimensions) {
      if (d.events)
        element(`choice-${d.tag}`).parentElement!.hidden = !d.events.includes(this.event());
    }
  }

  private showTimes(ids: string[], times: [number, number]): void {
    times.forEach((t, i) => {
      const input = element<HTMLInputElement>(ids[i]);
      if (input !== document.activeElement) input.value = localTime(t);
    });
  }

  private control(label: string, child: HTMLElement): HTMLElement {
    const wrap = document.createElement('label');

    wrap.append(label, child);
    return wrap;
  }

  private picker(tag: string): HTMLSelectElement {
    const picker = document.createElement('select');

    picker.id = `choice-${tag}`;
    picker.addEventListener('change', () => this.set(tag, picker.value));
    return picker;
  }

  private rangePicker(): HTMLSelectElement {
    const picker = this.picker('range');

    for (const [value, text] of ranges) picker.append(new Option(text, value));
    return picker;
  }

  private fill(tag: string, { values, truncated: more }: api.Values): void {
    const picker = element<HTMLSelectElement>(`choice-${tag}`);
    const chosen = this.chosen(tag);
    const options = values.filter((c) => c.value).map((c) => new Option(c.value, c.value));
    const text = (all: Iterable<HTMLOptionElement>): string =>
      [...all].map((o) => o.text).join('\n');

    const dimension = this.dimensions.find((d) => d.tag === tag);

    if (dimension?.rare)
      picker.parentElement!.hidden = !chosen && options.length === 0;
    if (chosen && !options.some((o) => o.value === chosen))
      options.unshift(new Option(more ? chosen : `${chosen} (no data)`, chosen));
    if (tag !== 'profile_event_type') options.unshift(new Option(dimension?.unset ?? 'all', ''));
    if (more) options.push(this.moreThere());
    // changing an open list would close it
    if (text(options) !== text(picker.options)) picker.replaceChildren(...options);
    picker.value = chosen;
    picker.title = chosen;
  }

  private moreThere(): HTMLOptionElement {
    const option = new Option(`… ${MAX_VALUES} of more: choose a workload or a namespace first`);

    option.disabled = true;
    return option;
  }
}
