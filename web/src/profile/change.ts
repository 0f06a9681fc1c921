// SPDX-License-Identifier: Apache-2.0
// Differences in words.
import type { Change, Difference, Terms } from './difference';
import { formatValue } from './values';

/** What is compared, and the unit of the values. */
interface Compared {
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
function errorText({ error }: Change, compared: Compared): string {
  const least = compared.errors === 'least' ? 'at least ' : '';

  return error === null ? '' : ` ± ${least}${sizeText(error, compared)}`;
}

/** Why a difference is none. */
const noiseText = ({ now, before, error }: Change, { errors }: Compared): string =>
  now === before
    ? 'no difference'
    : error === null && errors !== 'none'
      ? 'but one selection has nothing to compare with'
      : 'not distinguishable from noise';

/**
 * "12.3 s before, 15.1 s now: +23 %": the wholes of both selections. The last part is there only if
 * both are of the same thing: one pod has not grown from what three others use.
 */
export function wholesText(difference: Difference, unit: string, isSame: boolean): string {
  const { wholes, terms } = difference;
  const isRate = terms.by !== 'value' && terms.now.seconds !== terms.before.seconds;
  const side = (name: 'before' | 'now'): string => {
    const length = isRate ? ` (in ${formatValue(terms[name].seconds * 1e6, 'microseconds')})` : '';
    return `${formatValue(wholes[name], unit)} ${name}${length}`;
  };
  const scale = isRate ? terms.now.seconds / terms.before.seconds : 1;

  return (
    `${side('before')}, ${side('now')}` +
    (isSame && wholes.before ? `: ${growthText(wholes.now / (wholes.before * scale), isRate)}` : '')
  );
}

function growthText(factor: number, isRate: boolean): string {
  const what = isRate ? ' per second' : '';

  if (factor >= 10) return `${factor.toFixed(0)} times as much${what}`;
  const percent = (100 * (factor - 1)).toFixed(Math.abs(factor - 1) < 0.095 ? 1 : 0);
  if (Number(percent) === 0) return `as much${what}`;
  return `${factor > 1 ? '+' : ''}${percent.replace('-', '−')} %${what}`;
}

const amountText = (value: number, compared: Compared): string =>
  compared.by === 'share' ? `${digits(100 * value)} %` : sizeText(value, compared);

function sizeText(value: number, { by, unit }: Compared): string {
  if (by === 'share') return `${digits(100 * value)} points`;
  return `${formatValue(value, unit)}${by === 'second' ? ' per second' : ''}`;
}

const digits = (n: number): string => n.toFixed(Math.abs(n) >= 9.995 ? 1 : 2).replace('-', '−');
