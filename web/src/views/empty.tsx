// SPDX-License-Identifier: Apache-2.0
// Why nothing was found, and what to do next.
import { useRef, useState } from 'preact/hooks';
import type { Reason } from '../api/types';
import { inert } from '../profile/names';
import { withEvent } from '../state/leak';
import { hasTag, narrowed, withoutTag } from '../state/narrow';
import type { Change, State } from '../state/state';
import { lossText } from '../words/losses';
import type { Answers } from './asker';
import { copy } from './copy';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
}

export function Empty({ state, change, answers: { now, why } }: Props) {
  const { answer, isStale, error } = why;

  return (
    <section id="empty" aria-label="why there is nothing to show">
      <h2>No sample in this time for these choices</h2>
      {error && <p>The hub does not say why: {error}</p>}
      {!answer && !error && <p class="muted">The page asks the hub why …</p>}
      {answer && !error && (
        <ol class={isStale ? 'stale' : ''}>
          {answer.map((reason) => (
            <li key={reason.text}>
              <p>{inert(reason.text)}</p>
              <Details reason={reason} state={state} change={change} now={now} />
              {reason.command && <Command text={reason.command} />}
            </li>
          ))}
        </ol>
      )}
      {answer?.length === 0 && !isStale && (
        <p>The hub knows no reason: perhaps nothing that this event measures has happened.</p>
      )}
    </section>
  );
}

interface DetailsProps {
  reason: Reason;
  state: State;
  change: Change;
  now: number;
}

/** What the user can choose instead. */
function Details({ reason, state, change, now }: DetailsProps) {
  const { tag, values = [], events = [], losses = [], time_start: from, time_end: to } = reason;

  return (
    <>
      {losses.length > 0 && <ul>{losses.map((l) => <li key={l.reason}>{lossText(l)}</li>)}</ul>}
      <p class="offers">
        {tag && hasTag(state, tag) && (
          <button onClick={() => change(withoutTag(state, tag), 'push')}>
            remove the condition on {tag}
          </button>
        )}
        {reason.reason === 'condition' && !tag && reason.samples && (
          <button onClick={() => change({ filter: { conditions: [] }, process: '' }, 'push')}>
            remove all conditions
          </button>
        )}
        {tag && values.map((value) => (
          <button
            key={value}
            onClick={() =>
              change(narrowed({ ...state, ...withoutTag(state, tag) }, tag, value), 'push')}
          >
            {tag} = {inert(value)}
          </button>
        ))}
        {events.map((event) => (
          <button key={event} onClick={() => change(withEvent(state, event, now), 'push')}>
            show {event}
          </button>
        ))}
        {from !== undefined && to !== undefined && (
          <button onClick={() => change({ times: { from, to } }, 'push')}>
            show {new Date(from * 1000).toLocaleString()} to {new Date(to * 1000).toLocaleString()}
          </button>
        )}
      </p>
    </>
  );
}

/** A command line, which may have several lines, to be copied. */
function Command({ text }: { text: string }) {
  const [said, setSaid] = useState('');
  const code = useRef<HTMLElement>(null);
  const copied = async (): Promise<void> => {
    const isCopied = await copy(text);

    if (!isCopied) getSelection()!.selectAllChildren(code.current!);
    setSaid(isCopied ? 'copied' : 'The browser does not let a page copy: it is selected.');
  };

  return (
    <div class="command">
      <code ref={code}>{text}</code>
      <button onClick={() => void copied()}>copy</button>
      <span role="status">{said}</span>
    </div>
  );
}
