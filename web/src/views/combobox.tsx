// SPDX-License-Identifier: Apache-2.0
// A field to type in, above a list to choose from. The arrow keys go through the list; Enter takes
// what they have reached, or else what is typed.
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Option {
  key: string;
  text: string;
  note?: string;
  isChosen?: boolean;
}

interface Props<T extends Option> {
  label: string;
  hint: string;
  typed: string;
  onTyped: (typed: string) => void;
  options: T[];
  isMany?: boolean; // several options can be chosen
  isAsShown?: boolean; // the list is only to be looked at
  status: string;
  onPick: (option: T) => void;
  onEnter: () => void;
}

export function Combobox<T extends Option>(props: Props<T>) {
  const { label, hint, typed, onTyped, options, isMany, isAsShown, status } = props;
  const { onPick, onEnter } = props;
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [reached, setReached] = useState(''); // the key of an option
  const at = options.findIndex((o) => o.key === reached);

  useLayoutEffect(() => input.current!.focus(), []);
  useEffect(() => list.current?.children[at]?.scrollIntoView({ block: 'nearest' }), [at]);

  const step = (by: number): void => {
    const n = options.length;
    const next = at < 0 && by < 0 ? n - 1 : (at + by + n) % n;
    if (n && !isAsShown) setReached(options[next].key);
  };
  const onKeyDown = (e: KeyboardEvent): void => {
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') step(e.key === 'ArrowDown' ? 1 : -1);
    else if (e.key === 'Enter' && !e.isComposing) at < 0 ? onEnter() : onPick(options[at]);
    else return;
    e.preventDefault();
  };
  const onInput = (e: Event): void => {
    setReached('');
    onTyped((e.target as HTMLInputElement).value);
  };

  return (
    <>
      <input
        ref={input} type="text" role="combobox" aria-label={label} placeholder={hint} value={typed}
        autocomplete="off" spellcheck={false} aria-autocomplete="list" aria-controls={`${id}-list`}
        aria-expanded={options.length > 0} onInput={onInput} onKeyDown={onKeyDown}
        aria-activedescendant={at < 0 ? undefined : `${id}-${at}`}
      />
      <p class="combobox-status muted" role="status">{status}</p>
      <div
        ref={list} id={`${id}-list`} class="combobox-list" hidden={options.length === 0}
        role="listbox" aria-label={label} aria-multiselectable={isMany}
      >
        {options.map((option, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the keys of the list
          <div
            key={option.key} id={`${id}-${i}`} role="option" tabIndex={-1}
            class={i === at ? 'reached' : ''} aria-selected={option.isChosen ?? false}
            aria-disabled={isAsShown} title={option.text}
            onMouseDown={(e) => e.preventDefault()} // which would take the focus from the field
            onClick={() => !isAsShown && onPick(option)}
          >
            <span class="combobox-text">{option.text}</span>
            {option.note && <span class="muted">{option.note}</span>}
          </div>
        ))}
      </div>
    </>
  );
}
