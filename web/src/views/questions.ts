// SPDX-License-Identifier: Apache-2.0
// What the page has to ask the hub for a state.
import type {
  ChoicesQuestion, GroupsQuestion, ProfileQuestion, Selection, SeriesQuestion, ValuesQuestion,
} from '../api/types';
import { inHubForm } from '../profile/names';
import { canBePer } from '../profile/per';
import { askedOf, conditionsOf, offeredBy } from '../state/conditions';
import { printFilter, type Operator } from '../state/filter';
import { leakOf, timesOf } from '../state/leak';
import { chosenValue } from '../state/narrow';
import type { Compare, State } from '../state/state';
import {
  choiceTags, groupTags, isOfEvent, isStored, LABEL, labelOf, tagOf, type Tag,
} from '../state/tags';
import { intervalOf, WINDOW_S, type Interval } from '../state/times';

/** The most tags in one question for choices, beside the events and the names of labels. */
const MAX_CHOICES = 62;

interface Questions {
  profile: ProfileQuestion;
  request: RequestQuestion | null;
  breakdown: BreakdownQuestion | null;
  series: SeriesQuestion;
  choices: ChoicesQuestion;
  cpu: SeriesQuestion | null; // the CPU time of the same selection, if values are divided by it
}

/** Of one request: both events of its threads, by span. */
export interface RequestQuestion {
  cpu: ProfileQuestion;
  waits: ProfileQuestion;
}

/** By a tag: of both selections, if two are compared. */
export interface BreakdownQuestion {
  now: GroupsQuestion;
  before: GroupsQuestion | null;
}

export function questionsOf(state: State, tags: Tag[], now: number): Questions {
  const { compare } = state;
  const selection = selectionOf(state, state, tags, now);
  const before = compare ? selectionOf(state, compare, tags, now) : undefined;
  const [time_start, time_end] = spanOf(state, now);
  const around = { ...selection, time_start, time_end };

  return {
    profile: { ...selection, before, by_line: state.byLine || undefined },
    request: isRequest(state)
      ? {
          cpu: ofSpans('on-cpu', state, tags, now),
          waits: ofSpans('off-cpu', state, tags, now),
        }
      : null,
    breakdown: isBreakdown(state)
      ? {
          now: groupsQuestion(state, selection, tags),
          before: before ? groupsQuestion(state, before, tags) : null,
        }
      : null,
    series: { ...around, group_by: groupOf(state, tags) },
    choices: { ...around, tags: choiceTagsOf(state, tags) },
    cpu: cpuQuestion(state, tags, now),
  };
}

/** What a user can choose for a condition on a tag, or is typing. */
export function offeredQuestion(
  state: State, tags: Tag[], now: number, tag: string, op: Operator, typed: string,
): ValuesQuestion {
  const { choices: { tags: _, ...around } } = questionsOf(state, tags, now);
  const asked = { process: state.process, filter: askedOf(state.filter, tags, state.event) };

  return { ...around, ...offeredBy(asked, tag, op, typed), tag };
}

function cpuQuestion(state: State, tags: Tag[], now: number): SeriesQuestion | null {
  if (state.per !== 'cpu-second' || !canBePer(state.event).includes(state.per)) return null;
  return { ...selectionOf({ ...state, event: 'on-cpu' }, state, tags, now), group_by: '' };
}

export const isBreakdown = ({ view }: State): boolean => view === 'breakdown';

/** The tag of the breakdown, which may be a label of pods. */
export const breakdownTag = ({ by, event }: State, tags: Tag[]): string =>
  isStored(by) && isOfEvent(tagOf(tags, by), event) ? by : 'pod';

function groupsQuestion(state: State, selection: Selection, tags: Tag[]): GroupsQuestion {
  const { fn } = state;
  const kind = fn?.kind.replace(/:.*/, ''); // each cause of a wait is a kind of its own here

  return {
    ...selection,
    group_by: breakdownTag(state, tags),
    function: fn ? { name: inHubForm(fn.name, fn.kind), kind: kind || undefined } : undefined,
  };
}

/** The tag by whose values the time line is split; '': none, or the event does not have it. */
export function groupOf({ by, event }: State, tags: Tag[]): string {
  return labelOf(by) || groupTags(tags, event).some((t) => t.tag === by) ? by : '';
}

/** The stretch of time that the page is about, with the time of the snapshots of the leak view. */
function spanOf(state: State, now: number): Interval {
  const [from, to] = timesOf(state, now);
  const [start] = intervalOf(state.times, now);
  const first = state.compare ? intervalOf(state.compare.times, now)[0] : start;

  return leakOf(state, now) ? [Math.min(start, first), to] : [from, to];
}

export const hasTrace = (state: State): boolean => chosenValue(state, 'trace_id') !== '';

/** Whether the state shows one request. */
export const isRequest = (state: State): boolean => state.view === 'request' && hasTrace(state);

/** Whether the state has conditions that a request is not narrowed by. */
export const hasMoreThanTrace = (state: State): boolean => conditionsOf(state).length > 1;

/**
 * All of a request, because what is left out would count as missing. The samples of its last window
 * are stored after its end.
 */
function ofSpans(event: string, state: State, tags: Tag[], now: number): ProfileQuestion {
  const trace = { tag: 'trace_id', op: '=' as const, values: [chosenValue(state, 'trace_id')] };
  const request = { times: state.times, process: '', filter: { conditions: [trace] } };
  const selection = selectionOf({ ...state, event }, request, tags, now);

  return { ...selection, time_end: selection.time_end + WINDOW_S, group_by: 'profile_id' };
}

function selectionOf(
  { event, byStart }: State,
  { times, process, filter }: Compare,
  tags: Tag[],
  now: number,
): Selection {
  const [time_start, time_end] = intervalOf(times, now);

  return {
    profile_event_type: event,
    app_service: process,
    tag_filter: printFilter(askedOf(filter, tags, event)),
    time_start,
    time_end,
    ...(byStart && { unnamed: 'start' }),
  };
}

/** The usual tags, those of the conditions, the names of labels, and the events. */
function choiceTagsOf(state: State, tags: Tag[]): string[] {
  const usual = choiceTags(tags).filter((t) => isOfEvent(t, state.event)).map((t) => t.tag);
  const chosen = conditionsOf(state).map((c) => c.tag).filter(isStored);

  return [...new Set([...usual, ...chosen])]
    .slice(0, MAX_CHOICES)
    .concat(LABEL, 'profile_event_type');
}
