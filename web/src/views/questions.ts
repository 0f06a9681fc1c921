// SPDX-License-Identifier: Apache-2.0
// What the page has to ask the hub for a state.
import type {
  ChoicesQuestion, ProfileQuestion, Selection, SeriesQuestion,
} from '../api/types';
import { printFilter, type Filter } from '../state/filter';
import { leakOf } from '../state/leak';
import { chosenValue } from '../state/narrow';
import type { Compare, State } from '../state/state';
import { choiceTags, groupTags, isOfEvent, type Tag } from '../state/tags';
import { intervalOf, WINDOW_S, type Interval } from '../state/times';

export interface Questions {
  profile: ProfileQuestion;
  request: RequestQuestion | null;
  series: SeriesQuestion;
  choices: ChoicesQuestion;
}

/** Of one request: both events of its threads, by span. */
export interface RequestQuestion {
  cpu: ProfileQuestion;
  waits: ProfileQuestion;
}

export function questionsOf(state: State, ofEvents: Tag[], now: number): Questions {
  const { compare } = state;
  const selection = selectionOf(state, state, ofEvents, now);
  const before = compare ? selectionOf(state, compare, ofEvents, now) : undefined;
  const [time_start, time_end] = spanOf(state, now);
  const around = { ...selection, time_start, time_end };

  return {
    profile: { ...selection, before, by_line: state.byLine || undefined },
    request: isRequest(state)
      ? {
          cpu: ofSpans('on-cpu', state, ofEvents, now),
          waits: ofSpans('off-cpu', state, ofEvents, now),
        }
      : null,
    series: { ...around, group_by: groupOf(state, ofEvents) },
    choices: { ...around, tags: choiceTagsOf(state, ofEvents) },
  };
}

/** The tag by whose values the time line is split; '': none, or the event does not have it. */
export function groupOf({ by, event }: State, ofEvents: Tag[]): string {
  return groupTags(ofEvents, event).some((t) => t.tag === by) ? by : '';
}

/** The stretch of time that the page is about: in the leak view, between its moments. */
export function timesOf(state: State, now: number): Interval {
  const moments = leakOf(state, now);

  return moments ? [Math.min(...moments), Math.max(...moments)] : intervalOf(state.times, now);
}

/** The same with the time of the snapshots of the leak view. */
function spanOf(state: State, now: number): Interval {
  const [from, to] = timesOf(state, now);
  const [start] = intervalOf(state.times, now);
  const first = state.compare ? intervalOf(state.compare.times, now)[0] : start;

  return leakOf(state, now) ? [Math.min(start, first), to] : [from, to];
}

export const hasTrace = (state: State): boolean => chosenValue(state, 'trace_id') !== '';

/** Whether the state shows one request. */
export const isRequest = (state: State): boolean => state.view === 'request' && hasTrace(state);

/** The samples of a request's last window are stored after its end. */
function ofSpans(event: string, state: State, ofEvents: Tag[], now: number): ProfileQuestion {
  const selection = selectionOf({ ...state, event }, state, ofEvents, now);

  return { ...selection, time_end: selection.time_end + WINDOW_S, group_by: 'profile_id' };
}

function selectionOf(
  { event }: State,
  { times, process, filter }: Compare,
  ofEvents: Tag[],
  now: number,
): Selection {
  const [time_start, time_end] = intervalOf(times, now);

  return {
    profile_event_type: event,
    app_service: process,
    tag_filter: printFilter(ofEvent(filter, event, ofEvents)),
    time_start,
    time_end,
  };
}

/** A condition on a tag that the event does not have waits for another event. */
function ofEvent(filter: Filter, event: string, ofEvents: Tag[]): Filter {
  const isOther = (name: string): boolean =>
    ofEvents.some((t) => t.tag === name && !isOfEvent(t, event));

  if ('text' in filter) return filter;
  return { conditions: filter.conditions.filter((c) => !isOther(c.tag)) };
}

const choiceTagsOf = ({ event }: State, ofEvents: Tag[]): string[] => [
  ...choiceTags(ofEvents).filter((t) => isOfEvent(t, event)).map((t) => t.tag),
  'profile_event_type',
];
