// SPDX-License-Identifier: Apache-2.0
import { useLayoutEffect, useRef } from 'preact/hooks';
import { localTime, parseTime } from '../state/times';
import { Explained } from './explained';

interface Props {
  id: string;
  label: string;
  value: number; // Unix seconds
  onChoose: (seconds: number) => void;
}

/** A moment. What is typed stays until it is a time. */
function TimeInput({ id, label, value, onChoose }: Props) {
  const input = useRef<HTMLInputElement>(null);

  useLayoutEffect(() => {
    if (input.current !== document.activeElement) input.current!.value = localTime(value);
  }, [value]);
  return (
    <Explained text="your local time; the address has it in UTC">
      <label>
        {label}{' '}
        <input
          type="datetime-local"
          id={id}
          ref={input}
          step="1"
          onChange={(e) => {
            const seconds = parseTime(e.currentTarget.value);
            if (seconds !== null) onChoose(seconds);
          }}
          onBlur={(e) => {
            e.currentTarget.value = localTime(value);
          }}
        />
      </label>
    </Explained>
  );
}

interface SpanProps {
  id: string; // what the ids of both begin with
  span: [from: number, to: number]; // Unix seconds
  onChoose: (from: number, to: number) => void;
}

/** Two moments, each of which can be changed. */
export function SpanInput({ id, span: [from, to], onChoose }: SpanProps) {
  return (
    <>
      <TimeInput id={`${id}from`} label="from" value={from} onChoose={(t) => onChoose(t, to)} />
      {' '}
      <TimeInput id={`${id}to`} label="to" value={to} onChoose={(t) => onChoose(from, t)} />
    </>
  );
}
