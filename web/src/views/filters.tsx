// SPDX-License-Identifier: Apache-2.0
// What the profile is of: a row of conditions, and the same as text. Each is made from the other.
import { askedOf, conditionsOf, withAsked, withCondition } from '../state/conditions';
import { parseFilter, printFilter } from '../state/filter';
import { mistakeOf, type Mistake } from '../state/mistake';
import type { Change, State } from '../state/state';
import { choiceTags, isOfEvent, PROCESS, type Tag } from '../state/tags';
import type { Answers } from './asker';
import { Chips } from './chips';
import { FilterText } from './filter_text';
import type { Offer } from './offered';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
  offer: Offer;
}

export function Filters({ state, change, answers, offer }: Props) {
  const { filter, event } = state;
  const { tags, choices } = answers;
  const known = choices.answer ?? {};
  const isText = 'text' in filter;
  const hasValues = (tag: string): boolean => known[tag]?.values.some((v) => v.value) ?? false;
  const usual = choiceTags(tags).filter(
    (t) => isOfEvent(t, event) && (!t.rare || hasValues(t.tag)),
  );

  return (
    <section id="filters" aria-label="filters">
      <Chips
        conditions={conditionsOf(state)} tags={tags} event={event} known={known}
        usual={isText ? usual.filter((t) => t.tag === PROCESS) : usual}
        isText={isText} isKnown={!choices.isStale} offer={offer}
        onChange={(at, next) => change(withCondition(state, at, next))}
      />
      {isText && <TextOnly onClear={() => change({ filter: { conditions: [] } })} />}
      <FilterText
        text={askedText(state, tags)} mistake={mistakeIn(state, answers)}
        onText={(typed) =>
          change({ filter: withAsked(filter, tags, event, parseFilter(typed)) })}
      />
    </section>
  );
}

/** The text that the hub gets. */
const askedText = ({ filter, event }: State, tags: Tag[]): string =>
  printFilter(askedOf(filter, tags, event));

/** What the hub says is wrong with that text; null: nothing. */
export const mistakeIn = (state: State, { tags, error }: Answers): Mistake | null =>
  mistakeOf(error, askedText(state, tags));

const TextOnly = ({ onClear }: { onClear: () => void }) => (
  <p class="filter-only">
    This filter says more than single conditions can. Change it as text, or{' '}
    <button onClick={onClear}>remove it</button>.
  </p>
);
