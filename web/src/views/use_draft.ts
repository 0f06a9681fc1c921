// SPDX-License-Identifier: Apache-2.0
import { useState } from 'preact/hooks';

type FieldEvent = Event & { currentTarget: HTMLInputElement };

/**
 * The properties of a field whose text Enter and leaving it apply. Until then, what is typed stays,
 * whatever comes from the hub.
 */
export function useDraft(text: string, onText: (text: string) => void) {
  const [draft, setDraft] = useState<string | null>(null);

  return {
    value: draft ?? text,
    onInput: (e: FieldEvent) => setDraft(e.currentTarget.value),
    onChange: (e: FieldEvent) => {
      setDraft(null);
      onText(e.currentTarget.value);
    },
    onBlur: () => setDraft(null),
  };
}
