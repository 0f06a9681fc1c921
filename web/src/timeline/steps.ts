// SPDX-License-Identifier: Apache-2.0
// What the time line is drawn from: layers on top of each other, and marks. No DOM.
import type { Series } from '../api/types';
import { lossText } from '../words/losses';

/** The values of a group, on top of those of the layers before. */
export interface Layer {
  name: string;
  value: string | null; // of the tag; null: of several, or of what does not have the tag
  values: number[];
  tops: number[]; // its values and those of the layers before, added up
}

/** What happened at a time, or at times near each other. */
export interface Mark {
  from: number; // Unix seconds
  to: number;
  isLoss: boolean;
  text: string;
}

/** The greatest group is the lowest layer. */
export function layers({ groups, others, steps }: Series, isGrouped: boolean): Layer[] {
  const of = groups.map(({ value, values }) => ({
    name: isGrouped ? value || 'none' : 'all',
    value,
    values,
  }));
  let below = new Array<number>(steps).fill(0);

  if (others) of.push({ name: 'others', value: null, values: others });
  return of.map((layer) => {
    below = below.map((v, i) => v + layer.values[i]);
    return { ...layer, tops: below };
  });
}

/**
 * Losses and starts of processes. Those of `width` steps are one mark, and so are those of a kind
 * that go on in the steps after them.
 */
export function marks(series: Series, width: number, clock: (s: number) => string): Mark[] {
  const at = (step: number): number => series.start + step * series.step;
  const found: { first: number; end: number; isLoss: boolean }[] = [];

  for (let first = 0; first < series.steps; first += width) {
    const end = Math.min(series.steps, first + width);
    const isLoss = losses(series, first, end).length > 0;
    const last = found[found.length - 1];

    if (!isLoss && !starts(series, at(first), at(end)).length) continue;
    if (last?.end === first && last.isLoss === isLoss) last.end = end;
    else found.push({ first, end, isLoss });
  }
  return found.map(({ first, end, isLoss }) => {
    const [from, to] = [at(first), at(end)];
    const said = [...losses(series, first, end), ...starts(series, from, to)];

    return { from, to, isLoss, text: `${clock(from)} to ${clock(to)}: ${said.join(' · ')}` };
  });
}

function losses({ losses: all }: Series, first: number, end: number): string[] {
  const sum = (values: number[]): number => values.slice(first, end).reduce((a, b) => a + b, 0);

  return all
    .map(({ reason, samples, time_ns }) => ({
      reason,
      samples: sum(samples),
      time_ns: sum(time_ns),
    }))
    .filter((l) => l.samples || l.time_ns)
    .map(lossText);
}

function starts({ starts: all, more_starts: more }: Series, from: number, to: number): string[] {
  const n = all.filter((s) => s >= from && s < to).length;
  const hasLast = Math.max(...all) < to;

  if (n === 0) return [];
  return [
    `${n.toLocaleString()} ${n === 1 ? 'process' : 'processes'} began`,
    ...(more && hasLast ? ['those that began later are not marked'] : []),
  ];
}
