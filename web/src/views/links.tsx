// SPDX-License-Identifier: Apache-2.0
// Links from a trace to the pages that show it and its logs.
import { chosenValue } from '../state/narrow';
import type { State } from '../state/state';
import { intervalOf } from '../state/times';

interface Props {
  state: State;
  templates?: { trace: string; logs: string };
  now: number;
}

export function Links({ state, templates, now }: Props) {
  const words = wordsOf(state, now);
  const link = (name: 'trace' | 'logs', text: string) =>
    templates?.[name] &&
    words.trace_id && (
      <a id={`link-${name}`} target="_blank" rel="noopener" href={filled(templates[name], words)}>
        {text}
      </a>
    );

  return (
    <>
      {link('trace', 'the trace')}
      {link('logs', 'its logs')}
    </>
  );
}

/** The words that a template may have; '' if nothing is chosen. */
function wordsOf(state: State, now: number): Record<string, string> {
  const [start, end] = intervalOf(state.times, now);

  return {
    trace_id: chosenValue(state, 'trace_id'),
    pod_ns: chosenValue(state, 'pod_ns'),
    pod: chosenValue(state, 'pod'),
    start_ms: String(start * 1000),
    end_ms: String(end * 1000),
  };
}

const filled = (template: string, words: Record<string, string>): string =>
  template.replace(/\{(\w+)\}/g, (all, word: string) =>
    word in words ? encodeURIComponent(words[word]) : all,
  );
