// SPDX-License-Identifier: Apache-2.0
// Saves what is shown as a file.
import { useState } from 'preact/hooks';
import { SignInError } from '../api/hub';
import type { HubFile, Selection } from '../api/types';
import { fileName } from '../files/name';
import type { FlameGraph } from '../flame/flame';
import { inert } from '../profile/names';
import { chosenValue } from '../state/narrow';
import type { State } from '../state/state';
import type { Tag } from '../state/tags';
import { utc } from '../state/times';
import { errorText } from '../words/error';
import './download.css';
import { groupsOf, type Format, type Source } from './formats';
import { totalText } from './notes';
import { PopupButton } from './popup';
import { isRequest, questionsOf } from './questions';
import type { Shown } from './shown';

interface Props {
  state: State; // of the view
  shown: Shown;
  tags: Tag[]; // of some events only
  files: HubFile[];
  reload: () => void;
}

export function Download({ state, shown, tags, files, reload }: Props) {
  const [said, setSaid] = useState('');
  const download = async (format: Format): Promise<void> => {
    const source = sourceOf(state, shown, tags);

    setSaid('making the file …');
    try {
      const { content, lacks } = await format.make(source);
      save(content, nameOf(source, format.ending));
      setSaid(lacks);
    } catch (e) {
      setSaid(errorText(e));
      if (e instanceof SignInError) reload(); // the page then asks the user to sign in
    }
  };

  return (
    <>
      <PopupButton id="download" text="download">
        {(close) => groupsOf(state, files).map(({ heading, formats }) => (
          <section key={heading} class="formats" aria-label={heading}>
            <p class="muted">{heading}</p>
            {formats.map((format) => (
              <button
                key={format.ending}
                onClick={() => {
                  close();
                  void download(format);
                }}
              >
                {format.title} <small class="muted">{format.about}</small>
              </button>
            ))}
          </section>
        ))}
      </PopupButton>
      <span id="download-said" role="status" class="muted">{said}</span>
    </>
  );
}

function sourceOf(state: State, shown: Shown, tags: Tag[]): Source {
  const { answer } = shown;
  const { before, by_line, ...selection } = questionsOf(answer.state, tags, answer.now).profile;
  const element = document.querySelector<HTMLElement & { flame?: FlameGraph }>('#view .flame');

  return {
    shown,
    selection,
    heading: headingOf(state, shown, selection).filter(Boolean).join(' · '),
    graph: element?.flame ?? null,
  };
}

/** What a picture is of, which in some views is not the whole profile. */
function headingOf(state: State, shown: Shown, selection: Selection): string[] {
  const [event, ...others] = aboutOf(shown);
  const times = timesOf(selection);

  if (isRequest(state)) return ['one request', ...others, times];
  if (state.view !== 'sandwich' || !state.fn) return [event, ...others, times, sumOf(shown)];
  return [`${event}, callers of ${inert(state.fn.name)}`, ...others, times];
}

/** The event, the namespace, and the workload or the process. */
function aboutOf({ answer: { state } }: Shown): string[] {
  const [namespace, workload] = ['pod_ns', 'pod_group'].map((tag) => chosenValue(state, tag));

  return [state.event, namespace, workload || state.process];
}

const sumOf = (shown: Shown): string =>
  totalText(shown)
    .map(({ text }) => text)
    .join('');

const timesOf = ({ time_start: from, time_end: to }: Selection): string =>
  `${utc(from)} to ${utc(to)}`;

const nameOf = ({ shown, selection }: Source, ending: string): string =>
  fileName(aboutOf(shown), selection.time_start, selection.time_end, ending);

function save(content: BlobPart, name: string): void {
  const link = document.createElement('a');

  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // by then it is saved
}
