// SPDX-License-Identifier: Apache-2.0
// The sum of what is shown, and ways to look at its frames.
import type { Change, State } from '../state/state';
import { Check } from './check';
import { Download } from './download';
import { totalText } from './notes';
import { Sentence } from './sentence';
import type { Shown } from './shown';
import type { Answers } from './asker';

interface Props {
  state: State;
  change: Change;
  answers: Answers;
  reload: () => void;
  shown: Shown | null;
  hasFrames: boolean; // what is shown has frames or functions
}

export function Look({ state, change, answers, reload, shown, hasFrames }: Props) {
  return (
    <div id="look">
      {hasFrames && <Ways state={state} change={change} />}
      {shown?.answer.columns && !shown.answer.reply.preview && (
        <Download
          state={state}
          shown={shown}
          tags={answers.tags}
          files={answers.info?.files ?? []}
          reload={reload}
        />
      )}
      <strong id="total">{shown && <Sentence said={totalText(shown)} />}</strong>
    </div>
  );
}

const Ways = ({ state, change }: Pick<Props, 'state' | 'change'>) => (
  <>
      <input
        type="search"
        id="search"
        placeholder="search functions"
        aria-label="search functions"
        title="a part of the name, or a regular expression; in quotes, exactly that function"
        value={state.search}
        onInput={(e) => change({ search: e.currentTarget.value })}
      />
      <button
        id="reset"
        title="the search and the zoom"
        onClick={() => change({ search: '', zoom: [] })}
      >
        reset
      </button>
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
  </>
);
