// SPDX-License-Identifier: Apache-2.0
// From when on the hub has data of each namespace.
import { useEffect, useState } from 'preact/hooks';
import { SignInError } from '../api/hub';
import { hub } from '../api/queries';
import type { Oldest } from '../api/types';
import { errorText } from '../words/error';
import { useLatest } from './latest';
import { PopupButton } from './popup';
import './stored.css';
import { deletedText, placeText, sinceText } from './stored_words';

interface Props {
  reload: () => void;
}

export const Stored = ({ reload }: Props) => (
  <PopupButton id="stored" text="stored since">{() => <Answer reload={reload} />}</PopupButton>
);

/** Asks the hub anew each time it is opened. */
function Answer({ reload }: Props) {
  const [rows, setRows] = useState<Oldest[]>([]);
  const [said, setSaid] = useState('loading …');
  const signIn = useLatest(reload); // the page then asks the user to sign in

  useEffect(() => {
    const closed = new AbortController();

    hub.oldest(closed.signal).then(
      ({ result, notes = [] }) => {
        setRows(result);
        setSaid(result.length ? notes.join('; ') : ['Nothing is stored.', ...notes].join(' '));
      },
      (e) => {
        if (closed.signal.aborted) return;
        setSaid(errorText(e));
        if (e instanceof SignInError) signIn.current();
      },
    );
    return () => closed.abort();
  }, []);
  return (
    <section
      class="stored"
      aria-label="the oldest data"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: the arrow keys scroll it
      tabIndex={0}
    >
      <p role="status" class="muted">{said}</p>
      {rows.length > 0 && <Table rows={rows} />}
    </section>
  );
}

const Table = ({ rows }: { rows: Oldest[] }) => (
  <table>
    <caption>The hub has nothing from before these times.</caption>
    <thead>
      <tr>
        <th scope="col">namespace</th>
        <th scope="col">since</th>
        <th scope="col">deleted, to make room, until</th>
      </tr>
    </thead>
    <tbody>
      {rows.map((row) => (
        <tr key={`${row.cluster} ${row.namespace} ${row.unverified}`}>
          <th scope="row">{placeText(row)}</th>
          <td>{sinceText(row)}</td>
          <td>{deletedText(row)}</td>
        </tr>
      ))}
    </tbody>
  </table>
);
