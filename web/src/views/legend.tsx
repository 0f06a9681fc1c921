// SPDX-License-Identifier: Apache-2.0
// What the colours of the graph say, and what they mean.
import { legend } from '../flame/legend';
import type { Columns } from '../profile/columns';
import type { Change, State } from '../state/state';
import { kindSentence } from '../words/kinds';
import { Choice, type Option } from './choice';
import { Explained } from './explained';

interface Props {
  state: State;
  change: Change;
  columns: Columns;
}

export function Legend({ state: { colours }, change, columns }: Props) {
  const options: Option<State['colours']>[] = [
    { value: 'kind', text: 'kind' },
    { value: 'module', text: 'module' },
  ];

  if (columns.before) options.push({ value: 'difference', text: 'difference' });
  return (
    <div id="legend">
      <Choice
        id="colours"
        label="colours by "
        value={options.some((o) => o.value === colours) ? colours : 'kind'}
        options={options}
        onChoose={(value) => change({ colours: value })}
      />
      {legend(columns, colours).map(({ label, colour, kind, about }) => (
        <span key={label} style={{ borderLeft: `12px solid ${colour}` }}>
          <Explained text={kind ? kindSentence(kind, label) : about}>{label}</Explained>
        </span>
      ))}
    </div>
  );
}
