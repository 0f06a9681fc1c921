// SPDX-License-Identifier: Apache-2.0
// What is looked at: a row of choices whose values come from the data, kept in the address's hash.
import * as api from './api';

interface Dimension {
  tag: string;
  label: string;
  event?: string; // only this one has it
  rare?: boolean; // shown where there is something to choose
}

/** Workload stands first: it is what a person on call knows. */
const dimensions: Dimension[] = [
  { tag: 'pod_group', label: 'Workload' },
  { tag: 'pod_cluster', label: 'Cluster' },
  { tag: 'pod_ns', label: 'Namespace' },
  { tag: 'pod', label: 'Pod' },
  { tag: 'app_service', label: 'Process' },
  { tag: 'pod_node', label: 'Node' },
  { tag: 'wait', label: 'Waits for', event: 'off-cpu' },
  { tag: 'trace_id', label: 'Trace', rare: true },
];

const ranges: [string, string][] = [
  ['300', 'last 5 minutes'], ['900', 'last 15 minutes'], ['3600', 'last hour'], ['21600', 'last 6 hours'],
  ['86400', 'last day'], ['259200', 'last 3 days'], ['custom', 'from … to …'],
];

const element = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Unix seconds as a datetime-local input has them. */
const localTime = (s: number): string => utc(s - new Date(s * 1000).getTimezoneOffset() * 60).slice(0, 19);
/** ... and as the address has them: a link means the same time everywhere. */
const utc = (s: number): string => `${new Date(s * 1000).toISOString().slice(0, 19)}Z`;

export class Choices {
  private state = new URLSearchParams(location.hash.slice(1));

  constructor(private readonly changed: () => void) {
    const bar = element('choices');

    for (const d of dimensions) bar.append(this.control(d.label, this.picker(d.tag)));
    bar.append(this.control('Event', this.picker('profile_event_type')));
    bar.append(this.control('Time', this.rangePicker()));
    for (const id of ['from', 'to', 'grown_from', 'grown_to']) {
      const input = element<HTMLInputElement>(id);
      input.addEventListener('change', () => this.set(id, input.value && utc(Date.parse(input.value) / 1000)));
    }
    const growth = element<HTMLInputElement>('growth');
    growth.checked = this.state.has('growth');
    growth.addEventListener('change', () => this.set('growth', growth.checked ? '1' : ''));
    this.showControls();
  }

  private event(): string {
    return this.state.get('profile_event_type') || 'on-cpu';
  }

  /** Whether values are what is there at a time, not what happened in one. */
  private isSnapshot(): boolean {
    return this.event().endsWith('-inuse');
  }

  /** The two times of the leak view; null: it is not asked for. */
  growth(): [number, number] | null {
    const [start, end] = this.interval();

    return this.isSnapshot() && this.state.has('growth') ? [this.at('grown_from', start), this.at('grown_to', end)] : null;
  }

  selection(): api.Selection {
    const [time_start, time_end] = this.interval();

    return {
      profile_event_type: this.event(),
      app_service: this.state.get('app_service') ?? '',
      tag_filter: this.filter(null),
      time_start,
      time_end,
    };
  }

  /** Fills every choice with what the data holds under the other choices. */
  async refresh(): Promise<void> {
    const all = [...this.dimensions().map((d) => d.tag), 'profile_event_type'];
    const s = this.selection();

    this.showControls();

    await Promise.all(
      all.map(async (tag) => {
        const app_service = tag === 'app_service' ? '' : s.app_service;
        this.fill(tag, await api.values(tag, { ...s, app_service, tag_filter: this.filter(tag) }));
      }),
    );
  }

  /** What a link's template may name; '' where nothing is chosen. */
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
    const range = this.state.get('range') ?? '900';

    if (range === 'custom') return [this.at('from', now - 900), this.at('to', now)];
    return [now - Number(range), now];
  }

  /** A chosen time in Unix seconds. */
  private at(id: string, otherwise: number): number {
    const t = Date.parse(this.state.get(id) ?? '');

    return Number.isNaN(t) ? otherwise : Math.floor(t / 1000);
  }

  private dimensions(): Dimension[] {
    return dimensions.filter((d) => !d.event || d.event === this.event());
  }

  private filter(except: string | null): string {
    return this.dimensions()
      .filter((d) => d.tag !== 'app_service' && d.tag !== except && this.state.get(d.tag))
      .map((d) => `${d.tag}='${this.state.get(d.tag)!.replace(/[\\']/g, '\\$&')}'`)
      .join(' AND ');
  }

  private set(key: string, value: string): void {
    if (key === 'range' && value === 'custom') this.keepInterval();
    if (value) this.state.set(key, value);
    else this.state.delete(key);
    history.replaceState(null, '', `#${this.state}`);
    this.showControls();
    this.changed();
  }

  /** "from … to …" begins with the time that is shown. */
  private keepInterval(): void {
    this.interval().forEach((t, i) => {
      if (!this.state.get(['from', 'to'][i])) this.state.set(['from', 'to'][i], utc(t));
    });
  }

  private showControls(): void {
    const times = this.growth();
    const custom = this.state.get('range') === 'custom';

    element('custom').hidden = !custom;
    element('growth-choice').hidden = !this.isSnapshot();
    element('growth-times').hidden = !times;
    if (custom) this.showTimes(['from', 'to'], this.interval());
    if (times) this.showTimes(['grown_from', 'grown_to'], times);
    for (const d of dimensions) {
      if (d.event) element(`choice-${d.tag}`).parentElement!.hidden = d.event !== this.event();
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
    picker.value = this.state.get('range') ?? '900';
    return picker;
  }

  private fill(tag: string, found: api.Choice[]): void {
    const picker = element<HTMLSelectElement>(`choice-${tag}`);
    const chosen = tag === 'profile_event_type' ? this.event() : (this.state.get(tag) ?? '');
    const options = found.filter((c) => c.value).map((c) => new Option(c.value, c.value));

    if (dimensions.find((d) => d.tag === tag)?.rare) picker.parentElement!.hidden = !chosen && options.length === 0;
    if (chosen && !found.some((c) => c.value === chosen)) options.unshift(new Option(`${chosen} (no data)`, chosen));
    if (tag !== 'profile_event_type') options.unshift(new Option('all', ''));
    picker.replaceChildren(...options);
    picker.value = chosen;
    picker.title = chosen;
  }
}
