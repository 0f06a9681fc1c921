// SPDX-License-Identifier: Apache-2.0
// A row of choices. Their values come from the data.
import { MAX_VALUES } from '../api/queries';
import type { Values } from '../api/types';
import { withEvent } from '../state/leak';
import { narrowed, chosenValue } from '../state/narrow';
import type { Change, State } from '../state/state';
import { choiceTags, isOfEvent, type Tag } from '../state/tags';
import type { Answers } from './asker';
import { Choice, type Option } from './choice';

const unknown: Values = { values: [], truncated: false };

interface Props {
  state: State;
  change: Change;
  answers: Answers;
}

export function Choices({ state, change, answers }: Props) {
  const { now, tags, choices } = answers;
  const { event } = state;
  const found = choices.answer;
  const events = optionsOf(event, found?.profile_event_type ?? unknown, found !== null);

  return (
    <>
      {choiceTags(tags)
        .filter((tag) => isShown(tag, state, found))
        .map((tag) => (
          <Choice
            key={tag.tag}
            id={`choice-${tag.tag}`}
            label={tag.label}
            value={chosenValue(state, tag.tag)}
            options={tagOptions(tag, state, found)}
            onChoose={(value) => change(narrowed(state, tag.tag, value))}
          />
        ))}
      <Choice
        id="choice-profile_event_type"
        label="Event"
        value={event}
        options={events}
        onChoose={(value) => change(withEvent(state, value, now))}
      />
    </>
  );
}

function isShown(tag: Tag, state: State, found: Record<string, Values> | null): boolean {
  const hasValues = found?.[tag.tag]?.values.some((v) => v.value) ?? false;

  return isOfEvent(tag, state.event) && (!tag.rare || hasValues || chosenValue(state, tag.tag) !== '');
}

function tagOptions(
  { tag, unset }: Tag,
  state: State,
  found: Record<string, Values> | null,
): Option[] {
  const values = optionsOf(chosenValue(state, tag), found?.[tag] ?? unknown, found !== null);

  return [{ value: '', text: unset ?? 'all' }, ...values];
}

/** Offers what is chosen even if it has no data. */
function optionsOf(chosen: string, { values, truncated }: Values, isKnown: boolean): Option[] {
  const options: Option[] = values
    .filter((v) => v.value)
    .map(({ value }) => ({ value, text: value }));

  if (chosen && !options.some((o) => o.value === chosen))
    options.unshift({
      value: chosen,
      text: truncated || !isKnown ? chosen : `${chosen} (no data)`,
    });
  if (truncated)
    options.push({
      value: null,
      text: `… ${MAX_VALUES} of more: choose a workload or a namespace first`,
    });
  return options;
}
