// SPDX-License-Identifier: Apache-2.0
// The editor of one condition: an operator, and values among those that the hub has.
import { useState } from 'preact/hooks';
import type { Values } from '../api/types';
import { valuesFor } from '../state/conditions';
import { isList, type Condition, type Operator } from '../state/filter';
import { Choice } from './choice';
import { Combobox, type Option } from './combobox';
import { operatorWords, shown } from './filter_words';
import { useOffered, type Offer, type Offered } from './offered';

interface Props {
  tag: string;
  label: string;
  unset?: string; // what it means that there is no condition, unless it is everything
  condition: Condition | null;
  known?: Values;
  operators: readonly Operator[]; // those that can be chosen
  offer: Offer;
  onChange: (next: Condition | null) => void;
  onClose: () => void;
}

interface ValueOption extends Option {
  value: string | null; // null: any
}

const isPattern = (op: Operator): boolean => op === 'REGEXP' || op === 'NOT REGEXP';

export function ConditionEditor(props: Props) {
  const { tag, label, unset = 'all', condition, known, operators, offer, onChange } = props;
  const { onClose } = props;
  const values = condition?.values ?? [];
  const [op, setOp] = useState<Operator>(condition?.op ?? '=');
  const [typed, setTyped] = useState(isPattern(op) ? (values[0] ?? '') : '');
  const offered = useOffered(offer, tag, op, typed, known);
  const options = optionsOf(isPattern(op) ? [] : values, offered, typed ? null : unset);

  const apply = (next: string[]): void => {
    onChange(next.length ? { tag, op, values: next } : null);
    if (!isList(op)) onClose();
  };
  const toggle = (value: string): void =>
    apply(values.includes(value) ? values.filter((v) => v !== value) : [...values, value]);
  const pick = ({ value }: ValueOption): void => {
    if (value === null) apply([]);
    else if (isList(op)) toggle(value);
    else apply([value]);
  };
  const enter = (): void => {
    if (!typed) return onClose();
    apply(isList(op) ? [...new Set([...values, typed])] : [typed]);
    if (isList(op)) setTyped('');
  };
  const changeOperator = (next: Operator): void => {
    setOp(next);
    if (isPattern(next)) setTyped(typed || (values[0] ?? ''));
    else if (isPattern(op)) setTyped('');
    else if (condition) onChange({ tag, op: next, values: valuesFor(next, values) });
  };

  return (
    <>
      {operators.length > 1 && (
        <Choice
          id="condition-operator"
          label={<span class="unseen">how {label} is compared</span>}
          value={op}
          options={operators.map((value) => ({ value, text: operatorWords[value] }))}
          onChoose={changeOperator}
        />
      )}
      <Combobox
        label={isPattern(op) ? `regular expression for ${label}` : `value of ${label}`}
        hint={isPattern(op) ? 'a regular expression' : 'type a part of the value'}
        typed={typed} onTyped={setTyped} options={options} isMany={isList(op)}
        isAsShown={isPattern(op)} status={statusOf(op, typed, offered)} onPick={pick}
        onEnter={enter}
      />
      <button class="condition-done" onClick={enter}>{isList(op) ? 'done' : 'apply'}</button>
    </>
  );
}

/** What is chosen and not offered comes first, so that the user can take it back. */
function optionsOf(
  chosen: string[], { values, truncated, isBusy }: Offered, unset: string | null,
): ValueOption[] {
  const offered = values.filter((v) => v.value);
  const missing = chosen.filter((value) => !offered.some((v) => v.value === value));
  const whyMissing = truncated || isBusy ? '' : 'no data';
  const option = (value: string, note: string): ValueOption =>
    ({ key: `=${value}`, text: shown(value), note, value, isChosen: chosen.includes(value) });

  if (unset === null) return offered.map((v) => option(v.value, v.samples.toLocaleString()));
  return [
    { key: 'all', text: unset, value: null, isChosen: chosen.length === 0 },
    ...missing.map((value) => option(value, whyMissing)),
    ...offered.map((v) => option(v.value, v.samples.toLocaleString())),
  ];
}

function statusOf(op: Operator, typed: string, { values, truncated, isBusy, error }: Offered) {
  const n = values.length.toLocaleString();

  if (error) return error.replace(/^tag_filter: position \d+: /, '');
  if (isBusy) return 'The page asks the hub for values …';
  if (values.length === 0) return typed ? 'No value with data is like this.' : 'No value has data.';
  if (truncated) return `These ${n} values have the most samples. Type to find the others.`;
  if (isPattern(op) && typed)
    return values.length === 1 ? '1 value matches.' : `${n} values match.`;
  return 'The numbers count samples.';
}
