// SPDX-License-Identifier: Apache-2.0
// The breakdown: which pods (images, nodes, threads, ...) have the profile, or a function of it.
// A click on one narrows the filter to it.
import type { Selection, Summary } from '../api/types';
import { Comparison, termsOf } from '../profile/difference';
import { groupRows, measured, type GroupRow } from '../profile/groups';
import { inert, inOwnForm } from '../profile/names';
import { offeredGroups } from '../state/tags';
import type { BreakdownAnswer } from './asker';
import { Notes } from './banners';
import './breakdown.css';
import { GroupTable } from './breakdown_table';
import { labelNames } from './chips';
import { Choice } from './choice';
import { shown } from './filter_words';
import type { Noted } from './notes';
import { breakdownTag } from './questions';
import { inWords, type RowChange } from './shown';
import type { ViewProps } from './view';

export function Breakdown(props: ViewProps) {
  const { state, change, answers: { breakdown: { answer, isStale } } } = props;

  return (
    <section id="breakdown" aria-label="breakdown" class={isStale ? 'stale' : ''}>
      <div class="breakdown-tools">
        <TagChoice {...props} />
        <span>
          of {state.fn ? <b>{inert(state.fn.name)}</b> : 'everything'}
        </span>
        {state.fn
          ? <button id="breakdown-all" onClick={() => change({ fn: null })}>of everything</button>
          : <span class="muted">To see it of one function, select that in the table.</span>}
      </div>
      {answer && <Notes noted={notedOf(answer)} />}
      {answer && <Groups {...props} answer={answer} />}
    </section>
  );
}

/** The shares of both selections of a comparison are beside each other. */
const notedOf = ({ now, before }: BreakdownAnswer): Noted => ({
  summary: now.summary,
  before: before?.summary,
  unit: now.unit,
  total: now.result.total,
  hasShares: true,
});

function TagChoice({ state, change, answers: { tags, choices } }: ViewProps) {
  const tag = breakdownTag(state, tags);
  const offered = offeredGroups(tags, state.event, labelNames(choices.answer), tag);

  return (
    <Choice
      id="breakdown-by"
      label="by "
      value={tag}
      options={offered.map((t) => ({ value: t.tag, text: shown(t.label) }))}
      onChoose={(by) => change({ by })}
    />
  );
}

interface GroupsProps extends ViewProps {
  answer: BreakdownAnswer;
}

function Groups(props: GroupsProps) {
  const { answer: { question, now, before }, shown } = props;
  const rows = groupRows(now.result, before?.result ?? null);
  const whole = now.result.function_total ?? now.result.total;
  const { function: fn } = question.now;
  const name = fn && inert(inOwnForm(fn.name, fn.kind));

  return (
    <>
      <p class="muted" role="status">
        {shown.value(whole)}
        {name ? ` of ${name}, of ${shown.value(now.result.total)} in all` : ' in all'}
        {name && whole === 0 && ': the selection does not have this function by this name'}
        {now.summary.truncated &&
          '; there are too many stacks: the smallest are among the others, whatever their value'}
      </p>
      {rows.length > 0 && (
        <GroupTable
          {...props} rows={rows} tag={question.now.group_by} changeOf={changesOf(props)}
        />
      )}
    </>
  );
}

/** How rows have changed, of which both selections are known; null: two are not compared. */
function changesOf({ state, answer: { question, now, before } }: GroupsProps) {
  if (!before || !question.before) return null;
  const side = ({ time_start, time_end }: Selection, { estimated }: Summary) =>
    ({ seconds: Math.max(1, time_end - time_start), error: estimated?.error });
  const terms = termsOf(
    question.now.profile_event_type, state.per === 'second',
    side(question.now, now.summary), side(question.before, before.summary),
  );
  const compared = new Comparison(
    { now: measured(now.result), before: measured(before.result) }, terms,
  );

  return ({ amounts }: GroupRow): RowChange | null =>
    amounts && inWords(
      compared.of(amounts.now, {
        ...amounts.before, value: amounts.before.value * compared.scale,
      }),
      terms, now.unit,
    );
}
