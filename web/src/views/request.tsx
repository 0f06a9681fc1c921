// SPDX-License-Identifier: Apache-2.0
// One request: where its time went, by its spans and by what was seen of them.
import { useMemo } from 'preact/hooks';
import { requestOf, type Request } from '../profile/request';
import { formatValue } from '../profile/values';
import type { State } from '../state/state';
import type { RequestAnswer } from './asker';
import { Duration } from './duration';
import { MainGraph } from './graph';
import { Legend } from './legend';
import { hasMoreThanTrace } from './questions';
import { RequestTable } from './request_table';
import { emptyReasons, reasons, seenText, trustTexts } from './request_words';
import type { ViewProps } from './view';

const shown = {
  value: (us: number) => formatValue(us, 'microseconds'),
  changesOf: () => null,
};

export function RequestView({ state, change, answers }: Omit<ViewProps, 'shown'>) {
  const { answer, isStale } = answers.request;
  const { durationUs } = state;
  const request = useMemo(
    () => answer && requestOf(answer.cpu, answer.waits, durationUs),
    [answer, durationUs],
  );

  if (!answer || !request) return null;
  const { columns } = request;
  return (
    <section id="request" aria-label="one request" class={isStale ? 'stale' : ''}>
      <Duration state={state} change={change} />
      {hasMoreThanTrace(state) && (
        <p id="request-all" class="muted">
          This is all of the request: here the filter’s other conditions do not narrow it.
        </p>
      )}
      {columns ? <Trust request={request} answer={answer} state={state} /> : <NothingSeen />}
      {columns && (
        <>
          <Legend state={state} change={change} columns={columns} />
          <MainGraph state={state} change={change} columns={columns} shown={shown} />
          <RequestTable request={request} whole={columns.total[0]} />
          <Reasons answer={answer} />
        </>
      )}
    </section>
  );
}

interface TrustProps {
  request: Request;
  answer: RequestAnswer;
  state: State;
}

const Trust = ({ request, answer: { summaries }, state: { durationUs } }: TrustProps) => (
  <>
    <p id="request-seen">
      <strong>{seenText(request, durationUs)}</strong>
    </p>
    <p id="request-trust">{trustTexts(request, summaries).join(' ')}</p>
  </>
);

const Reasons = ({ answer: { summaries } }: { answer: RequestAnswer }) => (
  <details id="request-reasons">
    <summary>Why time of a request may be missing</summary>
    <List texts={reasons(summaries)} />
  </details>
);

const NothingSeen = () => (
  <div id="request-empty">
    <p>
      <strong>No sample and no wait of this request is stored for this time.</strong> It may be one
      of these:
    </p>
    <List texts={emptyReasons} />
    <p>
      <code>podflame doctor --pid PID</code> says whether podflame finds the trace context of a
      process. <code>docs/trace-context.md</code> says how a program publishes it.
    </p>
  </div>
);

const List = ({ texts }: { texts: string[] }) => (
  <ul>{texts.map((text) => <li key={text}>{text}</li>)}</ul>
);
