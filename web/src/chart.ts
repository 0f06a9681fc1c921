// SPDX-License-Identifier: Apache-2.0
// The flame graph: d3-flame-graph with our colours, labels and search.
import flamegraph, { type Cell, type FlameGraph } from 'd3-flame-graph';
import { select } from 'd3-selection';
import { formatValue, type Node } from './profile';

/** Hue of a frame's kind; its name varies the lightness. The legend shows the same. */
export const kinds: Record<string, { label: string; hue: number; saturation: number }> = {
  app: { label: 'program', hue: 110, saturation: 45 },
  library: { label: 'library', hue: 48, saturation: 80 },
  kernel: { label: 'kernel', hue: 16, saturation: 80 },
  jvm: { label: 'Java', hue: 150, saturation: 45 },
  python: { label: 'Python', hue: 220, saturation: 65 },
  lua: { label: 'Lua', hue: 255, saturation: 50 },
  cuda: { label: 'CUDA', hue: 280, saturation: 50 },
  object: { label: 'object', hue: 190, saturation: 50 },
  'wait: runqueue': { label: 'ready, but no CPU', hue: 0, saturation: 75 },
  'wait: lock': { label: 'lock', hue: 300, saturation: 55 },
  'wait: disk': { label: 'disk', hue: 30, saturation: 55 },
  'wait: socket': { label: 'socket', hue: 200, saturation: 75 },
  'wait: pipe': { label: 'pipe', hue: 175, saturation: 55 },
  'wait: poll': { label: 'poll, epoll', hue: 235, saturation: 40 },
  'wait: sleep': { label: 'sleep', hue: 70, saturation: 35 },
  'wait: other': { label: 'other waits', hue: 0, saturation: 20 },
  process: { label: 'process, thread', hue: 210, saturation: 30 },
  unknown: { label: 'not resolved', hue: 0, saturation: 0 },
  marker: { label: 'incomplete', hue: 330, saturation: 60 },
};

export function color(kind: string, name: string): string {
  const k = kinds[kind] ?? kinds.process;
  let hash = 0;

  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return `hsl(${k.hue} ${k.saturation}% ${66 + (Math.abs(hash) % 16)}%)`;
}

export class Chart {
  private graph: FlameGraph<Node> | null = null;
  private total = 0;
  /** Type arguments left out of what the frames show; colours, search and details keep the full name. */
  short = false;

  constructor(
    private readonly element: HTMLElement,
    private readonly details: (text: string) => void,
  ) {}

  draw(root: Node, unit: string): void {
    const label = (d: Cell<Node>): string =>
      `${d.data.name}${where(d.data)} — ${formatValue(d.data.value, unit)} (${percent(d.data.value, this.total)}), ` +
      `itself ${formatValue(d.data.self, unit)}`;

    this.clear();
    this.total = root.value;
    this.graph = flamegraph<Node>()
      .width(this.element.clientWidth)
      .cellHeight(18)
      .minFrameSize(1)
      .transitionDuration(matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 250)
      .inverted(true)
      .sort(true)
      .selfValue(false)
      .title('')
      .getName((d) => (this.short ? d.data.short : d.data.name))
      .tooltip(false)
      .setLabelHandler(label)
      .setColorMapper((d) => (d.highlight ? '#e600e6' : color(d.data.kind, d.data.name)))
      .setSearchMatch((d, term) => d.data.name.toLowerCase().includes(term.toLowerCase()))
      .setSearchHandler((_, sum) => this.details(`found: ${formatValue(sum, unit)} (${percent(sum, this.total)})`))
      .onHover((d) => this.details(label(d)));
    select(this.element).datum(root).call(this.graph as never);
  }

  search(term: string): void {
    if (term) this.graph?.search(term);
    else {
      this.graph?.clear();
      this.details('');
    }
  }

  resetZoom(): void {
    this.graph?.resetZoom();
  }

  clear(): void {
    this.graph?.destroy();
    this.graph = null;
    this.element.replaceChildren();
  }
}

/** " (inlined, work.cc:7)" */
function where(n: Node): string {
  const parts = [n.inlined ? 'inlined' : '', n.source].filter(Boolean);

  return parts.length ? ` (${parts.join(', ')})` : '';
}

export function percent(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(1).replace('-', '−')} %` : '0 %';
}
