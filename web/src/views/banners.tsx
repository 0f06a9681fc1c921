// SPDX-License-Identifier: Apache-2.0
// Banners: an error, and what the answer lacks.
import { estimatedText, lossesText, notesText, throttledText } from './notes';
import type { Shown } from './shown';

interface Props {
  error: string;
  storeNote: string;
  shown: Shown | null;
}

export function Banners({ error, storeNote, shown }: Props) {
  return (
    <>
      <div role="alert">
        <Banner id="error" text={error} />
      </div>
      <Banner id="losses" text={shown ? lossesText(shown) : ''} />
      <Banner id="estimated" text={shown ? estimatedText(shown) : ''} />
      <Banner id="notes" text={shown ? notesText(shown) : ''} />
      <Banner id="store-note" text={storeNote} />
      <Banner id="throttled" text={shown ? throttledText(shown) : ''} />
    </>
  );
}

const Banner = ({ id, text }: { id: string; text: string }) =>
  text ? <div id={id} class="banner">{text}</div> : null;
