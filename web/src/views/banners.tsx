// SPDX-License-Identifier: Apache-2.0
// Banners: an error, and what the answer lacks.
import { estimatedText, lossesText, notesText, throttledText, type Said } from './notes';
import { Sentence } from './sentence';
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
        <Banner id="error" said={ofText(error)} />
      </div>
      <Banner id="losses" said={shown ? lossesText(shown) : []} />
      <Banner id="estimated" said={shown ? estimatedText(shown) : []} />
      <Banner id="notes" said={shown ? notesText(shown) : []} />
      <Banner id="store-note" said={ofText(storeNote)} />
      <Banner id="throttled" said={shown ? throttledText(shown) : []} />
    </>
  );
}

const ofText = (text: string): Said[] => (text ? [{ text, about: '' }] : []);

const Banner = ({ id, said }: { id: string; said: Said[] }) =>
  said.length ? <div id={id} class="banner"><Sentence said={said} /></div> : null;
