// SPDX-License-Identifier: Apache-2.0
/** The sentence of a list for a word, which may come from anybody; '': there is none. */
export const sentence = (list: Record<string, string>, word: string): string =>
  Object.hasOwn(list, word) ? list[word] : '';
