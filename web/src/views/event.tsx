// SPDX-License-Identifier: Apache-2.0
// The event that the profile is of. Those without data can be chosen, too: the page then says why
// there is none.
import { withEvent } from '../state/leak';
import type { Change, State } from '../state/state';
import { events } from '../words/events';
import { sentence } from '../words/sentence';
import type { Answers } from './asker';
import { Choice, type Option } from './choice';
import { Explained } from './explained';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
}

export function EventChoice({ state, change, answers: { now, choices } }: Props) {
  const { event } = state;
  const found = choices.answer?.profile_event_type?.values.map(({ value }) => value);
  const others = found
    ? Object.keys(events).filter((name) => !found.includes(name))
    : [event]; // the hub has not said yet what there is
  const options: Option[] = [
    ...(found ?? []).map((value) => ({ value, text: value })),
    ...others.map((value) => ({ value, text: found ? `${value} (no data)` : value })),
  ];

  return (
    <Choice
      id="choice-profile_event_type"
      label={<Explained text={sentence(events, event)}>Event</Explained>}
      value={event}
      options={options}
      onChoose={(value) => change(withEvent(state, value, now))}
    />
  );
}
