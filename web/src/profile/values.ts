// SPDX-License-Identifier: Apache-2.0
// Values and shares in words.

export function formatValue(value: number, unit: string): string {
  if (value < 0) return `−${formatValue(-value, unit)}`;
  const steps: [number, string][] =
    unit === 'bytes'
      ? [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]
      : [[3600e6, 'h'], [60e6, 'min'], [1e6, 's'], [1e3, 'ms'], [1, 'µs']];

  for (const [size, name] of steps) if (value >= size) return `${digits(value / size)} ${name}`;
  return `${digits(value)} ${steps[steps.length - 1][1]}`;
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
