// SPDX-License-Identifier: Apache-2.0
// Values in words: as they are, per second, or per second of CPU time.
import { digits, formatValue, isSnapshot } from './values';

export interface Per {
  per: 'all' | 'second' | 'cpu-second';
  seconds: number; // of the selection's time
  cpuSeconds: number | null; // that the selection has used; null: not known
}

/** What values of an event can be divided by. A snapshot of memory is not made in a time. */
export function canBePer(event: string): Per['per'][] {
  if (isSnapshot(event)) return ['all'];
  return event === 'on-cpu' ? ['all', 'second'] : ['all', 'second', 'cpu-second'];
}

/** How values of an event are written. What cannot be divided is written as it is. */
export function valueFormat(
  event: string,
  unit: string,
  { per, seconds, cpuSeconds }: Per,
): (value: number) => string {
  const by = per === 'second' ? seconds : cpuSeconds;

  if (per === 'all' || !by || !canBePer(event).includes(per))
    return (value) => formatValue(value, unit);
  if (per === 'cpu-second') return (value) => `${formatValue(value / by, unit)}/CPU s`;
  if (event === 'on-cpu') return (value) => `${digits(value / by / 1e6)} CPUs`;
  return (value) => `${formatValue(value / by, unit)}/s`;
}
