// SPDX-License-Identifier: Apache-2.0
// The page: choices, the time line, and one of the views of the profile.
import { useMemo, useState } from 'preact/hooks';
import type { Values } from '../api/types';
import { Banners } from './banners';
import { Breakdown } from './breakdown';
import { CompareChoice } from './compare';
import { EventChoice } from './event';
import { Favourites } from './favourites';
import './filters.css';
import { Filters, hasMistake } from './filters';
import { Graph } from './graph';
import { Guard } from './guard';
import { Header } from './header';
import { Nodes } from './menu';
import { hasTrace } from './questions';
import { RequestView } from './request';
import { Sandwich } from './sandwich';
import { Shortcuts } from './shortcuts';
import { Showing } from './showing';
import { SignIn } from './sign_in';
import { Table } from './table';
import { ThemeChoice } from './theme';
import { TimelineView } from './timeline';
import { RangeChoice, TimeInputs } from './times';
import { Tools } from './tools';
import { useAddress } from './use_address';
import { useAnswers } from './use_answers';
import { useBegun } from './use_begun';
import { useLive } from './use_live';
import { IsDark, useTheme } from './use_theme';
import { previewOf, type View } from './view';
import { ViewTabs } from './view_tabs';

/** The views of a profile, as their tabs are in a row. */
const views: View[] = [
  {
    name: 'graph', title: 'Flame graph', component: Graph, tools: 'look and fold',
    hasPreview: true,
  },
  { name: 'sandwich', title: 'Callers and callees', component: Sandwich, tools: 'look and fold' },
  { name: 'table', title: 'Table', component: Table, tools: 'look and fold' },
  {
    name: 'breakdown', title: 'Breakdown', component: Breakdown, tools: 'none', hasNotes: true,
  },
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
  const offered = views.filter(({ isOf }) => !isOf || isOf(state));
  const view = offered.find((v) => v.name === state.view) ?? views[0];
  const chosen = { state, change, answers };
  const isBegun = useBegun(answers);

  useLive(isLive, answers.isBusy || answers.signIn !== null, reload);
  return isBegun && (
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
      <main class={profile.isStale && !previewOf(view, answers) ? 'stale' : ''}>
        <Guard what="the choices" of={[state, answers]}>
          <div id="asked">
            <div id="choices">
              <EventChoice {...chosen} />
              <RangeChoice state={state} change={change} now={now} />
              <TimeInputs state={state} change={change} now={now} />
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
        </Guard>
        <Guard what="the filters" of={[state, answers]}>
          <div id="narrowed">
            <Filters {...chosen} offer={offer} />
            <CompareChoice {...chosen} offer={offer} />
          </div>
        </Guard>
        <Guard what="the time line" of={[state, answers.series.answer]}>
          <TimelineView {...chosen} />
        </Guard>
        <Banners
          error={hasMistake(state, answers) ? '' : answers.error}
          storeNote={info?.store_note ?? ''}
        />
        <ViewTabs views={offered} state={state} change={change} />
        <Nodes.Provider value={nodes}>
          <Showing {...chosen} view={view} reload={reload} />
        </Nodes.Provider>
      </main>
      <SignIn why={answers.signIn} hint={info?.token_hint ?? ''} onSignIn={reload} />
    </IsDark.Provider>
  );
}

/** The nodes that the hub offers; none, if these are only the first ones. */
const nodesOf = (known: Values | undefined): string[] =>
  known && !known.truncated ? known.values.flatMap((v) => v.value || []) : [];
