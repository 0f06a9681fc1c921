// SPDX-License-Identifier: Apache-2.0
// Values and shares in words.

/** Whether values of an event are of a moment (live memory), not of a stretch of time. */
export const isSnapshot = (event: string): boolean =>
  event.endsWith('-inuse') || event.startsWith('inuse_') || event === 'goroutines';

/** What is neither time nor bytes is counted: objects, goroutines. */
const isCount = (unit: string): boolean => unit !== 'bytes' && unit !== 'microseconds';

export function formatValue(value: number, unit: string): string {
  if (value < 0) return `−${formatValue(-value, unit)}`;
  if (isCount(unit)) return formatCount(value);
  const steps: [number, string][] =
    unit === 'bytes'
      ? [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]
      : [[3600e6, 'h'], [60e6, 'min'], [1e6, 's'], [1e3, 'ms'], [1, 'µs']];

  for (const [size, name] of steps) if (value >= size) return `${digits(value / size)} ${name}`;
  return `${digits(value)} ${steps[steps.length - 1][1]}`;
}

function formatCount(value: number): string {
  for (const [size, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const)
    if (value >= size) return `${digits(value / size)} ${name}`;
  return Number.isInteger(value) ? String(value) : digits(value);
}

/** Distances of an axis's values, the least first, whose values are round numbers of some unit. */
export function roundSteps(unit: string): number[] {
  const decimal = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const sixtieths = [1, 2, 5, 10, 15, 30];
  const times = (size: number, all: number[]): number[] => all.map((n) => n * size);

  if (isCount(unit)) return [1, 1e3, 1e6, 1e9, 1e12].flatMap((many) => times(many, decimal));
  if (unit === 'bytes') return Array.from({ length: 53 }, (_, power) => 2 ** power);
  return [
    ...decimal,
    ...times(1e3, decimal),
    ...times(1e6, sixtieths),
    ...times(60e6, sixtieths),
    ...[1, 1e3, 1e6].flatMap((many) => times(3600e6 * many, decimal)),
  ];
}

/** A number as three digits, or fewer if it is small. */
export function digits(n: number): string {
  if (n < 0) return `−${digits(-n)}`;
  if (n === 0) return '0';
  if (n < 0.0005) return '<0.001';
  if (n < 0.1) return n.toFixed(3);
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

export function percent(part: number, whole: number): string {
  return whole ? `${((100 * part) / whole).toFixed(1).replace('-', '−')} %` : '0 %';
}
