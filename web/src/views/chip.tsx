// SPDX-License-Identifier: Apache-2.0
// A place in the row of filters: a button that says the condition and opens its editor, and one
// that removes it.
import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import type { Condition } from '../state/filter';
import { conditionText, operatorWords, valuesText } from './filter_words';

interface Props {
  id: string;
  label: string;
  unset: string; // the text of no condition
  condition: Condition | null;
  note: string; // what is odd about the condition; ''
  isOpen: boolean;
  onToggle: () => void;
  onRemove: () => void;
  children: ComponentChildren; // the editor, while it is open
}

export function Chip(props: Props) {
  const { id, label, unset, condition, note, isOpen, onToggle, onRemove, children } = props;
  const button = useRef<HTMLButtonElement>(null);
  const remove = (): void => {
    button.current!.focus();
    onRemove();
  };
  const onKeyDown = (e: KeyboardEvent): void => {
    if (condition && (e.key === 'Delete' || e.key === 'Backspace')) remove();
  };

  return (
    <span class={condition ? 'chip chosen' : 'chip'}>
      <button
        id={id} ref={button} class="chip-open" aria-haspopup="dialog" aria-expanded={isOpen}
        title={condition ? conditionText(label, condition) : undefined} onClick={onToggle}
        onKeyDown={onKeyDown}
      >
        <ChipText label={label} unset={unset} condition={condition} note={note} />
      </button>
      {condition && (
        <button
          class="chip-remove" title="remove this filter" onClick={remove}
          aria-label={`remove the filter: ${conditionText(label, condition)}`}
        >×</button>
      )}
      {isOpen && children}
    </span>
  );
}

/** "Pod: web-1", "Pod is not web-1", "Pod: all". */
function ChipText({ label, unset, condition, note }: Partial<Props>) {
  const isEqual = !condition || condition.op === '=';

  return (
    <>
      {label}
      {isEqual ? ': ' : ` ${operatorWords[condition.op]} `}
      <span class="chip-value">{condition ? valuesText(condition.values) : unset}</span>
      {note && <span class="chip-note"> ({note})</span>}
    </>
  );
}
