// SPDX-License-Identifier: Apache-2.0
// The names of files that the page saves.

const MAX_PART = 60; // characters

/** A text as a part of a file's name on every system. */
const safe = (text: string): string =>
  text.replace(/[^\w.-]+/g, '-').replace(/^[.-]+|-+$/g, '').slice(0, MAX_PART);

const stamp = (s: number): string =>
  new Date(s * 1000).toISOString().slice(0, 19).replace(/[-:]/g, '') + 'Z';

/** "on-cpu_app_web_20261128T174000Z-20261128T175500Z.svg"; times are in Unix seconds. */
export function fileName(about: string[], from: number, to: number, ending: string): string {
  const parts = [...about.map(safe).filter(Boolean), `${stamp(from)}-${stamp(to)}`];

  return `${parts.join('_')}.${ending}`;
}
