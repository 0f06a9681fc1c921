// SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

export interface Option<T extends string = string> {
  value: T;
  text: string;
}

interface Props<T extends string> {
  id: string;
  label: ComponentChildren;
  value: T;
  options: Option<T>[];
  onChoose: (value: T) => void;
}

/** A list of which one entry is chosen. */
export function Choice<T extends string>({ id, label, value, options, onChoose }: Props<T>) {
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
        onChange={(e) => onChoose(e.currentTarget.value as T)}
      >
        {options.map((o) => (
          <option key={o.value} value={o.value}>{o.text}</option>
        ))}
      </select>
    </label>
  );
}
