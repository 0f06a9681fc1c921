// SPDX-License-Identifier: Apache-2.0
// Banners: an error, and what an answer lacks.
import {
  estimatedText, lossesText, notesText, throttledText, type Noted, type Said,
} from './notes';
import { Sentence } from './sentence';

interface Props {
  error: string;
  storeNote: string;
}

/** What concerns all that is shown. */
export const Banners = ({ error, storeNote }: Props) => (
  <>
    <div role="alert">
      <Banner id="error" said={ofText(error)} />
    </div>
    <Banner id="store-note" said={ofText(storeNote)} />
  </>
);

/** What concerns an answer. */
export const Notes = ({ noted }: { noted: Noted }) => (
  <>
    <Banner id="losses" said={lossesText(noted)} />
    <Banner id="estimated" said={estimatedText(noted)} />
    <Banner id="notes" said={notesText(noted)} />
    <Banner id="throttled" said={throttledText(noted)} />
  </>
);

const ofText = (text: string): Said[] => (text ? [{ text, about: '' }] : []);

const Banner = ({ id, said }: { id: string; said: Said[] }) =>
  said.length ? <div id={id} class="banner"><Sentence said={said} /></div> : null;
