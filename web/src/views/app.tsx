// SPDX-License-Identifier: Apache-2.0
// The page: choices, the time line, and one of the views of the profile.
import type { ComponentType } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Values } from '../api/types';
import type { State, ViewName } from '../state/state';
import { Banners } from './banners';
import { Breakdown } from './breakdown';
import { Chosen } from './chosen';
import { CompareChoice } from './compare';
import { Empty } from './empty';
import { EventChoice } from './event';
import { Favourites } from './favourites';
import './filters.css';
import { Filters, mistakeIn } from './filters';
import { FoldChoice } from './fold';
import { Graph } from './graph';
import { Header } from './header';
import { Look } from './look';
import { Nodes } from './menu';
import { hasTrace } from './questions';
import { RequestView } from './request';
import { Sandwich } from './sandwich';
import { Shortcuts } from './shortcuts';
import { useShown } from './shown';
import { SignIn } from './sign_in';
import { Table } from './table';
import { ThemeChoice } from './theme';
import { TimelineView } from './timeline';
import { RangeChoice, TimeInputs } from './times';
import { Tools } from './tools';
import { useAddress } from './use_address';
import { useAnswers } from './use_answers';
import { useLive } from './use_live';
import { IsDark, useTheme } from './use_theme';
import type { ViewProps } from './view';
import { ViewTabs } from './view_tabs';

interface View {
  name: ViewName;
  title: string;
  component: ComponentType<ViewProps>;
  isOf?: (state: State) => boolean; // whether it can be chosen
  /** What a user can change of it: what is sought and how it is drawn; also what is folded. */
  tools: 'none' | 'look' | 'look and fold';
}

/** The views of a profile, as their tabs are in a row. */
const views: View[] = [
  { name: 'graph', title: 'Flame graph', component: Graph, tools: 'look and fold' },
  { name: 'sandwich', title: 'Callers and callees', component: Sandwich, tools: 'look and fold' },
  { name: 'table', title: 'Table', component: Table, tools: 'look and fold' },
  { name: 'breakdown', title: 'Breakdown', component: Breakdown, tools: 'none' },
  {
    name: 'request', title: 'One request', component: RequestView, isOf: hasTrace, tools: 'look',
  },
];

export function App() {
  const [state, change] = useAddress();
  const { answers, reload, offer } = useAnswers(state);
  const [isLive, setLive] = useState(false);
  const themes = useTheme();
  const { info, profile, choices, now } = answers;
  const nodes = useMemo(() => nodesOf(choices.answer?.pod_node), [choices.answer]);
  const shown = useShown(profile.answer, state, answers.cpuSeconds);
  const offered = views.filter(({ isOf }) => !isOf || isOf(state));
  const { name, component: View, tools } = offered.find((v) => v.name === state.view) ?? views[0];
  const hasView = shown?.answer.columns || name === 'request';

  useLive(isLive, answers.isBusy || answers.signIn !== null, reload);
  return (
    <IsDark.Provider value={themes.isDark}>
      <Header info={info} isBusy={answers.isBusy}>
        <ThemeChoice {...themes} />
        <Shortcuts
          state={state}
          change={change}
          now={now}
          views={offered.map((v) => v.name)}
          reload={reload}
          themes={themes}
        />
      </Header>
      <main class={profile.isStale ? 'stale' : ''}>
        <div id="asked">
          <div id="choices">
            <EventChoice state={state} change={change} answers={answers} />
            <RangeChoice state={state} change={change} now={now} />
            <Favourites state={state} change={change} now={now} />
          </div>
          <Tools
            state={state}
            answers={answers}
            reload={reload}
            isLive={isLive}
            setLive={setLive}
          />
        </div>
        <TimeInputs state={state} change={change} now={now} />
        <Filters state={state} change={change} answers={answers} offer={offer} />
        <CompareChoice state={state} change={change} answers={answers} />
        <TimelineView state={state} change={change} answers={answers} />
        <Banners
          error={mistakeIn(state, answers) ? '' : answers.error}
          storeNote={info?.store_note ?? ''}
          shown={shown}
        />
        <ViewTabs views={offered} state={state} change={change} />
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
            <Chosen state={state} change={change} columns={shown?.columns ?? null} />
          </>
        )}
        <div id="view">
          {shown && hasView && (
            <Nodes.Provider value={nodes}>
              <View state={state} change={change} shown={shown} answers={answers} />
            </Nodes.Provider>
          )}
          {shown && !hasView && <Empty state={state} change={change} answers={answers} />}
        </div>
      </main>
      <SignIn why={answers.signIn} hint={info?.token_hint ?? ''} onSignIn={reload} />
    </IsDark.Provider>
  );
}

/** The nodes that the hub offers; none, if these are only the first ones. */
const nodesOf = (known: Values | undefined): string[] =>
  known && !known.truncated ? known.values.flatMap((v) => v.value || []) : [];
