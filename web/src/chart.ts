// SPDX-License-Identifier: Apache-2.0
// The flame graph: d3-flame-graph with our colours, labels and search.
import flamegraph, { type Cell, type FlameGraph } from 'd3-flame-graph';
import { select } from 'd3-selection';
import { formatValue, isFunction, type Node } from './profile';

/** The kind of a frame gives its hue, and the name its lightness. The legend shows the hues. */
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
  'wait: gpu': { label: 'GPU', hue: 140, saturation: 65 },
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

/**
 * Whether a term finds a node. A term finds the names that it is a part of, in upper or lower case;
 * a term in quotes finds the functions of exactly that name.
 */
export function matcher(term: string): (of: { name: string; kind: string }) => boolean {
  const exact = /^"(.+)"$/s.exec(term)?.[1];
  const part = term.toLowerCase();

  if (exact !== undefined) return (f) => f.name === exact && isFunction(f);
  return (f) => f.name.toLowerCase().includes(part);
}

export class Chart {
  private graph: FlameGraph<Node> | null = null;
  private total = 0;
  private unit = '';
  /** The names from below the root to the frame that fills the width. */
  private zoomed: string[] = [];
  /**
   * Leaves type arguments out of the names in the graph. Colours, search and details use the full
   * name.
   */
  short = false;

  constructor(
    private readonly element: HTMLElement,
    private readonly details: (text: string) => void,
  ) {}

  draw(root: Node, unit: string): void {
    const label = (d: Cell<Node>): string =>
      `${d.data.name}${where(d.data)} — ` +
      `${formatValue(d.data.value, unit)} (${percent(d.data.value, this.total)}), ` +
      `itself ${formatValue(d.data.self, unit)}`;

    this.clear();
    this.total = root.value;
    this.unit = unit;
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
      .onClick((d) => (this.zoomed = path(d)))
      .onHover((d) => this.details(label(d)));
    select(this.element).datum(root).call(this.graph as never);
    this.zoomAgain();
  }

  /** The library's own search fails for more than about 100,000 frames. */
  search(term: string): void {
    const matches = matcher(term);
    let sum = 0;
    const visit = (d: Cell<Node>, inFound: boolean): void => {
      d.highlight = term !== '' && matches(d.data);
      if (d.highlight && !inFound) sum += d.data.value;
      d.children?.forEach((child) => visit(child, inFound || d.highlight!));
    };

    if (!this.graph) return this.details('');
    visit(this.root(), false);
    this.graph.update();
    this.details(term && `found: ${formatValue(sum, this.unit)} (${percent(sum, this.total)})`);
  }

  resetZoom(): void {
    this.forgetZoom();
    this.graph?.resetZoom();
  }

  /** Forgets the zoom: the next graph is drawn whole. */
  forgetZoom(): void {
    this.zoomed = [];
  }

  private root(): Cell<Node> {
    return select(this.element).datum() as Cell<Node>;
  }

  /** Zooms a newer answer to the frame that was zoomed to, if the answer has it. */
  private zoomAgain(): void {
    let at: Cell<Node> | undefined = this.root();

    for (const name of this.zoomed) at = at?.children?.find((d) => d.data.name === name);
    if (at?.parent) this.graph!.zoomTo(at);
  }

  clear(): void {
    this.graph?.destroy();
    this.graph = null;
    this.element.replaceChildren();
  }
}

function path(d: Cell<Node>): string[] {
  return d.parent ? [...path(d.parent), d.data.name] : [];
}

/** " (inlined, work.cc:7)" */
function where(n: Node): string {
  const parts = [n.inlined ? 'inlined' : '', n.source].filter(Boolean);

  return parts.length ? ` (${parts.join(', ')})` : '';
}

export function percent(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(1).replace('-', '−')} %` : '0 %';
}
