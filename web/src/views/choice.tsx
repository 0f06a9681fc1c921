// SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

export interface Option {
  value: string | null; // null: it cannot be chosen
  text: string;
}

interface Props {
  id: string;
  label: ComponentChildren;
  value: string;
  options: Option[];
  onChoose: (value: string) => void;
}

/** A list of which one entry is chosen. */
export function Choice({ id, label, value, options, onChoose }: Props) {
  const select = useRef<HTMLSelectElement>(null);

  // an option that has come only now can be the chosen one
  useLayoutEffect(() => {
    select.current!.value = value;
  });
  return (
    <label for={id}>
      {label}
      <select
        id={id}
        ref={select}
        title={value}
        onChange={(e) => onChoose(e.currentTarget.value)}
      >
        {options.map((o) => (
          <option key={o.value} value={o.value ?? ''} disabled={o.value === null}>
            {o.text}
          </option>
        ))}
      </select>
    </label>
  );
}
