// SPDX-License-Identifier: Apache-2.0
// Where the hub found a mistake in the text of a filter.

export interface Mistake {
  at: number; // index in the text, up to its length
  reason: string;
}

const pattern = /^tag_filter: position (\d+): (.*)$/s;

/** The index of a character in text, of the hub's position: bytes of UTF-8, from 1. */
function indexOf(position: number, text: string): number {
  let index = 0;
  let bytes = 1;

  for (const character of text) {
    if (bytes >= position) break;
    const code = character.codePointAt(0)!;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    index += character.length;
  }
  return index;
}

/** null: the error of the hub is about something else. */
export function mistakeOf(error: string, text: string): Mistake | null {
  const [, position, reason] = pattern.exec(error) ?? [];

  return position ? { at: indexOf(Number(position), text), reason } : null;
}
