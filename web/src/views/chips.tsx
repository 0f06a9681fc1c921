// SPDX-License-Identifier: Apache-2.0
// The row of conditions. The usual tags have a place each, with or without a condition; below the
// button of a place opens its editor.
import { useRef, useState } from 'preact/hooks';
import type { Values } from '../api/types';
import { slotsOf, type Slot } from '../state/conditions';
import { operators, type Condition } from '../state/filter';
import { isOfEvent, LABEL, labelTags, tagOf, type Tag } from '../state/tags';
import { Chip } from './chip';
import { ConditionEditor } from './condition';
import { shown } from './filter_words';
import type { Offer } from './offered';
import { Popup } from './popup';
import { TagPicker } from './tag_picker';

/** The values of tags that are known already. */
export type Known = Record<string, Values>;

/** The names of the labels that the selected pods have, in an order that stays. */
export const labelNames = (known: Known | null): string[] =>
  (known?.[LABEL]?.values ?? []).map((v) => v.value).sort();

interface Props {
  id: string; // which those of its buttons begin with
  conditions: Condition[];
  usual: Tag[];
  isText: boolean; // the filter is text, to which no condition can be added here
  tags: Tag[]; // all that the hub stores
  event: string;
  known: Known;
  isKnown: boolean; // whether the values are those for these conditions
  offer: Offer;
  onChange: (at: number, next: Condition | null) => void;
}

/** The editor that is open, and the condition that it changes. */
interface Open {
  by: string; // the id of the button that has opened it
  tag: string; // '': the user has to choose one
  at: number;
}

export function Chips(props: Props) {
  const {
    id: prefix, conditions, usual, isText, tags, event, known, isKnown, offer, onChange,
  } = props;
  const [open, setOpen] = useState<Open | null>(null);
  const adding = `${prefix}add-filter`;
  const add = useRef<HTMLButtonElement>(null);
  const isUsual = (name: string): boolean => usual.some((t) => t.tag === name);

  const toggle = (next: Open): void => setOpen(open?.by === next.by ? null : next);
  const close = (isDone: boolean): void => {
    if (isDone) document.getElementById(open!.by)?.focus();
    setOpen(null);
  };
  const remove = ({ tag, at }: Slot): void => {
    onChange(at, null);
    if (!isUsual(tag)) add.current?.focus();
  };
  const editor = ({ tag, at }: Open) => {
    const isThere = conditions[at]?.tag === tag;
    return (
      <ConditionEditor
        tag={tag} label={shown(tagOf(tags, tag).label)} unset={tagOf(tags, tag).unset}
        condition={isThere ? conditions[at] : null} known={known[tag]} offer={offer}
        operators={isText ? ['='] : operators}
        onChange={(next) => onChange(isThere ? at : conditions.length, next)}
        onClose={() => close(true)}
      />
    );
  };
  const chip = ({ id, ...slot }: Slot & { id: string }) => {
    const tag = tagOf(tags, slot.tag);
    const label = shown(tag.label);
    return (
      <Chip
        key={id} id={id} label={label} unset={tag.unset ?? 'all'} condition={slot.condition}
        note={slot.condition ? noteOf(slot.condition, tag, event, isKnown ? known : {}) : ''}
        isOpen={open?.by === id} onToggle={() => toggle({ by: id, tag: slot.tag, at: slot.at })}
        onRemove={() => remove(slot)}
      >
        <Popup label={`filter by ${label}`} onClose={close}>{open && editor(open)}</Popup>
      </Chip>
    );
  };

  return (
    <div class="chips">
      {withIds(prefix, slotsOf(conditions, usual.map((t) => t.tag))).map(chip)}
      {!isText && (
        <span class="chip">
          <button
            id={adding} ref={add} class="chip-open" aria-haspopup="dialog"
            aria-expanded={open?.by === adding}
            onClick={() => toggle({ by: adding, tag: '', at: conditions.length })}
          >+ add a filter</button>
          {open?.by === adding && (
            <Popup label="add a filter" onClose={close}>
              {open.tag
                ? editor(open)
                : <TagPicker
                    tags={[...tags, ...labelTags(labelNames(known))]}
                    onPick={(tag) => setOpen({ ...open, tag })}
                  />}
            </Popup>
          )}
        </span>
      )}
    </div>
  );
}

/** The first place of a tag has the tag in its id, so that links and tests find it. */
function withIds(prefix: string, slots: Slot[]): (Slot & { id: string })[] {
  const seen = new Map<string, number>();

  return slots.map((slot) => {
    const n = (seen.get(slot.tag) ?? 0) + 1;
    seen.set(slot.tag, n);
    return { ...slot, id: `${prefix}choice-${slot.tag}${n > 1 ? `-${n}` : ''}` };
  });
}

/** Why a condition has no effect, or leaves nothing; ''. */
function noteOf({ op, values }: Condition, tag: Tag, event: string, known: Known): string {
  const { values: found, truncated } = known[tag.tag] ?? { values: [], truncated: true };
  const missing = values.filter((value) => !found.some((v) => v.value === value));

  if (!isOfEvent(tag, event)) return `not part of ${event}`;
  if (truncated || missing.length === 0 || op.endsWith('REGEXP')) return '';
  return missing.length === values.length ? 'no data' : `no data: ${missing.map(shown).join(', ')}`;
}
