// SPDX-License-Identifier: Apache-2.0
// Differences in words.
import type { Change, Terms } from './difference';
import { formatValue } from './values';

/** What is compared, and the unit of the values. */
export interface Compared {
  by: Terms['by'];
  errors: Terms['errors'];
  unit: string;
}

/** "now 4.10 %, before 2.00 %: +2.10 points ± 0.30 points" */
export function changeText(change: Change, compared: Compared): string {
  const { now, before, isNoise } = change;

  return (
    `now ${amountText(now, compared)}, before ${amountText(before, compared)}: ` +
    differenceText(change, compared) +
    errorText(change, compared) +
    (isNoise ? `, ${noiseText(change, compared)}` : '')
  );
}

/** "+2.10 points": percentage points, values per second, or values. */
export function differenceText({ now, before }: Change, compared: Compared): string {
  const difference = now - before;

  return `${difference > 0 ? '+' : ''}${sizeText(difference, compared)}`;
}

/** " ± 0.30 points"; "" if the error is not known. */
export function errorText({ error }: Change, compared: Compared): string {
  const least = compared.errors === 'least' ? 'at least ' : '';

  return error === null ? '' : ` ± ${least}${sizeText(error, compared)}`;
}

/** Why a difference is none. */
export const noiseText = ({ now, before, error }: Change, { errors }: Compared): string =>
  now === before
    ? 'no difference'
    : error === null && errors !== 'none'
      ? 'but one selection has nothing to compare with'
      : 'not distinguishable from noise';

const amountText = (value: number, compared: Compared): string =>
  compared.by === 'share' ? `${digits(100 * value)} %` : sizeText(value, compared);

function sizeText(value: number, { by, unit }: Compared): string {
  if (by === 'share') return `${digits(100 * value)} points`;
  return `${formatValue(value, unit)}${by === 'second' ? ' per second' : ''}`;
}

const digits = (n: number): string => n.toFixed(Math.abs(n) >= 9.995 ? 1 : 2).replace('-', '−');
