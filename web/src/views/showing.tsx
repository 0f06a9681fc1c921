// SPDX-License-Identifier: Apache-2.0
// What is shown of the answers: one of the views of the profile, below what the answer lacks and
// what the user can change of the view.
import type { ComponentChildren } from 'preact';
import { defaults, type Change, type State } from '../state/state';
import type { Answers } from './asker';
import { Notes } from './banners';
import { Chosen } from './chosen';
import { Empty } from './empty';
import { FoldChoice } from './fold';
import { Guard } from './guard';
import { Look } from './look';
import { notedOf } from './notes';
import { isRequest } from './questions';
import { useShown } from './shown';
import { previewOf, type View } from './view';

interface Props {
  view: View;
  state: State;
  change: Change;
  answers: Answers;
  reload: () => void;
}

/** How a profile is shown where the user has chosen nothing of that. */
const {
  fold, hidden, without, withoutIdle, focus, zoom, byLine, byStart, per, search, grown,
} = defaults;
const asItCame: Partial<State> = {
  fold, hidden, without, withoutIdle, focus, zoom, byLine, byStart, per, search, grown,
};

interface Guarded extends Props {
  children: ComponentChildren;
}

/** If what is in it fails, another view or another choice may not. */
function ViewGuard({ view, state, change, answers, children }: Guarded) {
  const { profile, request, breakdown, cpuSeconds } = answers;

  return (
    <Guard
      what={`the view “${view.title}”`}
      of={[state, profile.answer, profile.preview, request.answer, breakdown.answer, cpuSeconds]}
      otherwise={
        <button onClick={() => change(asItCame, 'push')}>show it with nothing chosen in it</button>
      }
    >
      {children}
    </Guard>
  );
}

/** The tools of a view outlive the view, since they may be why it fails. */
export const Showing = (props: Props) => (
  <ViewGuard {...props}><Content {...props} /></ViewGuard>
);

function Content(props: Props) {
  const { view, state, change, answers, reload } = props;
  const { component: View, tools } = view;
  const shown = useShown(
    previewOf(view, answers) ?? answers.profile.answer, state, answers.cpuSeconds,
  );
  const hasView = shown?.answer.columns || isRequest(state);

  return (
    <>
      {shown && !view.hasNotes && <Notes noted={notedOf(shown)} />}
      <Look
        state={state}
        change={change}
        answers={answers}
        reload={reload}
        shown={shown}
        hasFrames={tools !== 'none'}
      />
      {tools === 'look and fold' && (
        <>
          <FoldChoice state={state} change={change} />
          <Chosen state={state} change={change} shown={shown} />
        </>
      )}
      <div id="view">
        <ViewGuard {...props}>
          {shown && (hasView
            ? <View state={state} change={change} shown={shown} answers={answers} />
            : <Empty state={state} change={change} answers={answers} />)}
        </ViewGuard>
      </div>
    </>
  );
}
