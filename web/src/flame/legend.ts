// SPDX-License-Identifier: Apache-2.0
// What the colours of a flame graph mean.
import type { Columns } from '../profile/columns';
import { fileOf, inert } from '../profile/names';
import { changeColour, colour, css, kinds, moduleColour, type Colouring } from './colours';

const MAX_MODULES = 12;

interface Meaning {
  label: string;
  colour: string; // of CSS
  kind?: string; // of a colour for a kind
  about: string; // the same in a sentence; '': the label says all
}

/** The meanings that a graph of the profile needs, in the order in which a legend lists them. */
export function legend(columns: Columns, colouring: Colouring): Meaning[] {
  if (colouring === 'difference' && columns.before) return differences;
  if (colouring === 'module') return ofModules(columns);
  return ofKinds(columns, () => true);
}

const change = (before: number, now: number, isNoise = false): string =>
  css(changeColour({ before, now, error: 0, isNoise }));

const STRENGTH = 'The stronger the colour, the greater the difference beside the value itself.';

const differences: Meaning[] = [
  { label: 'less, or gone', colour: change(1, 0), about: `Less than before. ${STRENGTH}` },
  { label: 'a little less', colour: change(1, 0.9), about: `Less than before. ${STRENGTH}` },
  {
    label: 'not distinguishable from noise',
    colour: change(0, 0, true),
    about: 'Samples are taken by chance, which explains so small a difference.',
  },
  { label: 'a little more', colour: change(0.9, 1), about: `More than before. ${STRENGTH}` },
  { label: 'more, or new', colour: change(0, 1), about: `More than before. ${STRENGTH}` },
];

/** The kinds that functions of the profile have, if `is` is true of a function. */
function ofKinds({ fn, functions }: Columns, is: (fn: number) => boolean): Meaning[] {
  const used = new Set<string>();

  for (const f of fn) if (is(f)) used.add(functions.kinds[f]);
  return Object.entries(kinds)
    .filter(([kind]) => used.has(kind))
    .map(([kind, { label }]) => ({ label, colour: css(colour(kind, label)), kind, about: '' }));
}

/** The modules with the greatest values of their own, and the kinds of what has no module. */
function ofModules(columns: Columns): Meaning[] {
  const { fn, self, functions } = columns;
  const sums = new Map<string, number>();

  for (let i = 0; i < fn.length; i++) {
    const module = functions.modules[fn[i]];
    if (module) sums.set(module, (sums.get(module) ?? 0) + self[i]);
  }
  const greatest = [...sums].sort((a, b) => b[1] - a[1]).slice(0, MAX_MODULES);
  return [
    ...greatest.map(([module]) => ({
      label: inert(fileOf(module) || module),
      colour: css(moduleColour(module, module)),
      about: inert(module),
    })),
    ...ofKinds(columns, (f) => !functions.modules[f]),
  ];
}
