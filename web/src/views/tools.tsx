// SPDX-License-Identifier: Apache-2.0
// What is asked of the hub, again or by others.
import type { State } from '../state/state';
import type { Answers } from './asker';
import { Check } from './check';
import { Links } from './links';
import { Share } from './share';
import { Stored } from './stored';

interface Props {
  state: State;
  answers: Answers;
  reload: () => void;
  isLive: boolean;
  setLive: (isLive: boolean) => void;
}

export function Tools({ state, answers, reload, isLive, setLive }: Props) {
  return (
    <div id="tools">
      <button id="reload" onClick={reload}>reload</button>
      <Check id="live" isOn={isLive} onChange={setLive}>every 10 s</Check>
      <Share state={state} now={answers.now} />
      <Stored reload={reload} />
      <Links state={state} templates={answers.info?.links} now={answers.now} />
    </div>
  );
}
