// SPDX-License-Identifier: Apache-2.0
// What the profile is of: a row of conditions, and the same as text. Each is made from the other.
import {
  askedOf, conditionsOf, withAsked, withCondition, type Selected,
} from '../state/conditions';
import { parseFilter, printFilter } from '../state/filter';
import { mistakeOf, type Mistake } from '../state/mistake';
import type { Change, State } from '../state/state';
import { choiceTags, isOfEvent, PROCESS, type Tag } from '../state/tags';
import type { Answers, Asker } from './asker';
import { Chips, type Known } from './chips';
import { FilterText } from './filter_text';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
  offer: Asker['offer'];
}

export function Filters({ state, change, answers, offer }: Props) {
  const { filter, event } = state;
  const { tags, choices } = answers;
  const known = choices.answer ?? {};
  const hasValues = (tag: string): boolean => known[tag]?.values.some((v) => v.value) ?? false;
  const usual = choiceTags(tags).filter(
    (t) => isOfEvent(t, event) && (!t.rare || hasValues(t.tag)),
  );

  return (
    <section id="filters" aria-label="filters">
      <Conditions
        id="" name="tag_filter" state={state} tags={tags} known={known}
        isKnown={!choices.isStale} mistake={mistakeIn(state, answers)} offer={offer}
        usual={'text' in filter ? usual.filter((t) => t.tag === PROCESS) : usual}
        onChange={change}
      />
    </section>
  );
}

interface ConditionsProps {
  id: string; // which those of its elements begin with
  name: string; // of the field with the text
  state: State; // of which the selection is
  tags: Tag[];
  usual: Tag[]; // those that have a place also without a condition
  known: Known;
  isKnown: boolean; // whether the values are those for these conditions
  mistake: Mistake | null; // that the hub has found in the text
  offer: Asker['offer'];
  onChange: (part: Partial<Selected>) => void;
}

/** The conditions of a selection. */
export function Conditions(props: ConditionsProps) {
  const { id, name, state, tags, usual, known, isKnown, mistake, offer, onChange } = props;
  const { filter, event } = state;
  const isText = 'text' in filter;

  return (
    <>
      <Chips
        id={id} conditions={conditionsOf(state)} tags={tags} event={event} known={known}
        usual={usual} isText={isText} isKnown={isKnown}
        offer={(...typed) => offer(state, ...typed)}
        onChange={(at, next) => onChange(withCondition(state, at, next))}
      />
      {isText && <TextOnly onClear={() => onChange({ filter: { conditions: [] } })} />}
      <FilterText
        name={name} text={askedText(state, tags)} mistake={mistake}
        onText={(typed) =>
          onChange({ filter: withAsked(filter, tags, event, parseFilter(typed)) })}
      />
    </>
  );
}

/** The text that the hub gets. */
const askedText = ({ filter, event }: Pick<State, 'filter' | 'event'>, tags: Tag[]): string =>
  printFilter(askedOf(filter, tags, event));

/** What the hub says is wrong with that text; null: nothing. */
const mistakeIn = (state: State, { tags, error }: Answers): Mistake | null =>
  mistakeOf(error, askedText(state, tags));

const BEFORE = 'before: ';

/** The same of the text of the other selection. */
export const mistakeBefore = ({ event, compare }: State, answers: Answers): Mistake | null =>
  compare && answers.error.startsWith(BEFORE)
    ? mistakeOf(
        answers.error.slice(BEFORE.length),
        askedText({ filter: compare.filter, event }, answers.tags),
      )
    : null;

/** Whether the error of the answers is one that a field shows. */
export const hasMistake = (state: State, answers: Answers): boolean =>
  (mistakeIn(state, answers) ?? mistakeBefore(state, answers)) !== null;

const TextOnly = ({ onClear }: { onClear: () => void }) => (
  <p class="filter-only">
    This filter says more than single conditions can. Change it as text, or{' '}
    <button onClick={onClear}>remove it</button>.
  </p>
);
