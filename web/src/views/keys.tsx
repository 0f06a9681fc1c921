// SPDX-License-Identifier: Apache-2.0
// A dialog that lists all keys.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Check } from './check';
import { graphKeys, keyLabel, pageKeys, type Key } from '../words/keys';

interface Props {
  isOpen: boolean;
  onClose: () => void;
  isOn: boolean;
  setOn: (isOn: boolean) => void;
}

export function Keys({ isOpen, onClose, isOn, setOn }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);

  useLayoutEffect(() => {
    if (!isOpen) dialog.current!.close();
    else if (!dialog.current!.open) dialog.current!.showModal();
  }, [isOpen]);
  return (
    <dialog id="keys" ref={dialog} aria-labelledby="keys-title" onClose={onClose}>
      <h2 id="keys-title">Keys</h2>
      <KeyTable title="Everywhere" keys={pageKeys} />
      <KeyTable title="In the flame graph" keys={graphKeys} />
      <Check id="single-keys" isOn={isOn} onChange={setOn}>single keys act (“?” always does)</Check>
      <p>
        <button onClick={onClose}>close</button>
      </p>
    </dialog>
  );
}

const KeyTable = ({ title, keys }: { title: string; keys: readonly Key[] }) => (
  <table class="keys">
    <caption>{title}</caption>
    <tbody>
      {keys.map(({ key, text }) => (
        <tr key={key}>
          <th scope="row"><kbd>{keyLabel(key)}</kbd></th>
          <td>{text}</td>
        </tr>
      ))}
    </tbody>
  </table>
);
