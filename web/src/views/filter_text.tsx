// SPDX-License-Identifier: Apache-2.0
// The filter as text, which Enter and leaving the field apply. What the hub finds wrong in it
// stands below, and the text stays.
import { useId, useRef, useState } from 'preact/hooks';
import { inert } from '../profile/names';
import type { Mistake } from '../state/mistake';

interface Props {
  name: string;
  text: string;
  mistake: Mistake | null;
  onText: (text: string) => void;
}

/** How much of the text is shown on each side of a mistake. */
const AROUND = 40;

export function FilterText({ name, text, mistake, onText }: Props) {
  const id = useId();
  const [draft, setDraft] = useState<string | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const apply = (): void => {
    if (draft !== null && draft !== text) onText(draft);
    setDraft(null);
  };
  const onKeyDown = (e: KeyboardEvent): void => {
    if (e.key === 'Escape') setDraft(null);
    if (e.key !== 'Enter' || e.isComposing) return;
    e.preventDefault();
    apply();
  };
  const showMistake = (): void => {
    field.current!.focus();
    field.current!.setSelectionRange(mistake!.at, mistake!.at + 1);
  };

  return (
    <div class="filter-text">
      <label for={`${id}-field`}>Filter as text</label>
      <textarea
        id={`${id}-field`} ref={field} name={name} rows={1} spellcheck={false}
        autocapitalize="off" autocomplete="off" value={draft ?? text}
        placeholder="pod_ns='app' AND pod REGEXP '^web-'" aria-invalid={mistake !== null}
        aria-describedby={mistake ? `${id}-mistake` : undefined}
        onInput={(e) => setDraft(e.currentTarget.value)} onKeyDown={onKeyDown} onBlur={apply}
      />
      {mistake && (
        <p id={`${id}-mistake`} class="filter-mistake" role="alert">
          {inert(mistake.reason)}{' '}
          <button onClick={showMistake}>position {mistake.at + 1}</button>{' '}
          <Excerpt text={draft ?? text} at={mistake.at} />
        </p>
      )}
    </div>
  );
}

/** The text around a mistake, which is marked. */
function Excerpt({ text, at }: { text: string; at: number }) {
  const from = Math.max(0, at - AROUND);
  const rest = text.slice(at, at + AROUND);
  const [wrong] = /^(?:\w+|.|)/su.exec(rest)!;

  return (
    <code>
      {from > 0 && '…'}
      {inert(text.slice(from, at))}
      <mark>{wrong ? inert(wrong) : '\u00a0'}</mark>
      {inert(rest.slice(wrong.length))}
      {at + AROUND < text.length && '…'}
    </code>
  );
}
