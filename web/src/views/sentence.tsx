// SPDX-License-Identifier: Apache-2.0
import { Explained } from './explained';
import type { Said } from './notes';

/** A text whose parts are explained. */
export const Sentence = ({ said }: { said: Said[] }) => (
  <>{said.map(({ text, about }) => <Explained key={text} text={about}>{text}</Explained>)}</>
);
