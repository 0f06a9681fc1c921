// SPDX-License-Identifier: Apache-2.0
// What can be done with what is shown, and its sum.
import type { ComponentChildren } from 'preact';
import type { Change, State } from '../state/state';
import type { Answers } from './asker';
import { Download } from './download';
import { Links } from './links';
import type { Said } from './notes';
import { Sentence } from './sentence';
import { Share } from './share';
import type { Shown } from './shown';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
  reload: () => void;
  isLive: boolean;
  setLive: (isLive: boolean) => void;
  total: Said[];
  shown: Shown | null;
}

export function Tools({ state, change, answers, reload, isLive, setLive, shown, total }: Props) {
  return (
    <div id="tools">
      <input
        type="search"
        id="search"
        placeholder="search functions"
        aria-label="search functions"
        title="a part of the name; in quotes, exactly that function"
        value={state.search}
        onInput={(e) => change({ search: e.currentTarget.value })}
      />
      <button id="reset" onClick={() => change({ search: '', zoom: [] })}>
        reset zoom and search
      </button>
      <button id="reload" onClick={reload}>reload</button>
      <Check id="live" isOn={isLive} onChange={setLive}>every 10 s</Check>
      <Check
        id="short"
        isOn={state.short}
        onChange={(short) => change({ short })}
        title={'std::vector<…>; the full name stays in the line above the graph and for the search'}
      >
        short names
      </Check>
      <Check
        id="upward"
        isOn={state.upward}
        onChange={(upward) => change({ upward })}
        title="callers below what they call"
      >
        flames upward
      </Check>
      <Share state={state} now={answers.now} />
      {shown?.answer.columns && (
        <Download shown={shown} tags={answers.tags} reload={reload} />
      )}
      <Links state={state} templates={answers.info?.links} now={answers.now} />
      <strong id="total"><Sentence said={total} /></strong>
    </div>
  );
}

interface CheckProps {
  id: string;
  isOn: boolean;
  onChange: (isOn: boolean) => void;
  title?: string;
  children: ComponentChildren;
}

const Check = ({ id, isOn, onChange, title, children }: CheckProps) => (
  <label title={title}>
    <input
      type="checkbox"
      id={id}
      checked={isOn}
      onChange={(e) => onChange(e.currentTarget.checked)}
    />{' '}
    {children}
  </label>
);
