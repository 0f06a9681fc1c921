// SPDX-License-Identifier: Apache-2.0
// The time line (timeline/).
import { useContext, useLayoutEffect, useRef } from 'preact/hooks';
import { timesOf, withTimes, zoomedOut } from '../state/leak';
import { narrowed } from '../state/narrow';
import type { Change, State } from '../state/state';
import { offeredGroups } from '../state/tags';
import { Timeline } from '../timeline/timeline';
import type { Answers } from './asker';
import { labelNames } from './chips';
import { shown } from './filter_words';
import { useLatest } from './latest';
import { groupOf } from './questions';
import { IsDark } from './use_theme';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
}

export function TimelineView(props: Props) {
  const { state, answers: { series, tags, choices } } = props;
  const { event } = state;
  const by = groupOf(state, tags);
  const isDark = useContext(IsDark);
  const element = useRef<HTMLElement>(null);
  const timeline = useRef<Timeline | null>(null);
  const latest = useLatest(props);

  useLayoutEffect(() => {
    timeline.current = new Timeline(element.current!, {
      onGroup: (tag) => latest.current.change({ by: tag }),
      onTimes: (from, to) => {
        const { state, change, answers } = latest.current;
        change(withTimes(state, { from, to }, answers.now));
      },
      onZoomOut: () => {
        const { state, change, answers } = latest.current;
        change(zoomedOut(state, answers.now));
      },
      onNarrow: (tag, value) =>
        latest.current.change(narrowed(latest.current.state, tag, value), 'push'),
      now: () => latest.current.answers.now,
    });
    return () => timeline.current!.destroy();
  }, []);
  useLayoutEffect(() => {
    const { state, answers: { tags, now } } = latest.current;

    if (series.answer && !series.isStale)
      timeline.current!.show(series.answer, timesOf(state, now), groupOf(state, tags));
  }, [series.answer, series.isStale]);
  useLayoutEffect(() => {
    const offered = offeredGroups(tags, event, labelNames(choices.answer), by);

    timeline.current!.offer(offered.map((t) => ({ ...t, label: shown(t.label) })), by);
  }, [event, by, tags, choices.answer]);
  useLayoutEffect(() => timeline.current!.setDark(isDark), [isDark]);
  return (
    <section
      id="timeline"
      ref={element}
      aria-label="time line"
      class={series.isStale ? 'stale' : ''}
      hidden={!series.answer}
    />
  );
}
