// SPDX-License-Identifier: Apache-2.0
// The choice of the tag that a new condition is about.
import { useState } from 'preact/hooks';
import { LABEL, labelOf, labelTags, type Tag } from '../state/tags';
import { Combobox, type Option } from './combobox';
import { shown } from './filter_words';

interface Props {
  tags: Tag[]; // with the labels of pods that are known
  onPick: (tag: string) => void;
}

export function TagPicker({ tags, onPick }: Props) {
  const [typed, setTyped] = useState('');
  const options = optionsOf(tags, typed);
  const enter = (): void => {
    if (options.length === 1 || options[0]?.key === typed) pick(options[0]);
  };
  const pick = ({ key }: Option): void => (key === LABEL ? setTyped(LABEL) : onPick(key));

  return (
    <Combobox
      label="tag of the new filter" hint="type a part of the tag" typed={typed} onTyped={setTyped}
      options={options} status={statusOf(options, typed)} onPick={pick} onEnter={enter}
    />
  );
}

function optionsOf(tags: Tag[], typed: string): Option[] {
  const part = typed.toLowerCase();
  const isLike = ({ tag, label, help = '' }: Tag): boolean =>
    [tag, label, help].some((text) => text.toLowerCase().includes(part));
  const option = ({ tag, label, help }: Tag): Option =>
    ({ key: tag, text: shown(label), note: label === tag ? help : tag });

  const found = tags
    .filter(isLike)
    .sort((a, b) => Number(b.tag === typed) - Number(a.tag === typed));

  // other pods may have a label that the selected ones do not have
  if (labelOf(typed) && found[0]?.tag !== typed) found.unshift(...labelTags([labelOf(typed)]));
  return found.map(option);
}

function statusOf(options: Option[], typed: string): string {
  if (typed.startsWith(LABEL) && options.length < 2)
    return 'Type the name of a label that the target keeps.';
  return options.length ? '' : 'No tag has this name.';
}
