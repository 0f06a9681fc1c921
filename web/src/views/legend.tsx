// SPDX-License-Identifier: Apache-2.0
// The colours that the graph uses.
import { colour, css, kinds } from '../flame/colours';
import type { Columns } from '../profile/columns';
import { kindSentence } from '../words/kinds';
import { Explained } from './explained';

export function Legend({ columns }: { columns: Columns }) {
  const used = new Set<string>();

  for (const fn of columns.fn) used.add(columns.functions.kinds[fn]);
  return (
    <div id="legend">
      {Object.entries(kinds)
        .filter(([kind]) => used.has(kind))
        .map(([kind, { label }]) => (
          <span key={kind} style={{ borderLeft: `12px solid ${css(colour(kind, label))}` }}>
            <Explained text={kindSentence(kind, label)}>{label}</Explained>
          </span>
        ))}
    </div>
  );
}
