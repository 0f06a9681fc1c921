// SPDX-License-Identifier: Apache-2.0
import { kindSentence } from './kinds';
import { markerSentence } from './markers';

/** The sentence for a frame whose name does not say what it is; '': a function's. */
export const frameSentence = (name: string, kind: string): string =>
  markerSentence(name) || (/^wait|^unnamed$/.test(kind) ? kindSentence(kind, name) : '');
