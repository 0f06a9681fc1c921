// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Columns } from '../profile/columns';
import { profileOf } from '../profile/testing';
import { transform } from '../profile/transform';
import { parse } from '../state/address';
import { defaults } from '../state/state';
import { totalText } from './notes';
import type { Shown } from './shown';

const shownOf = (all: Columns, columns: Columns): Shown => ({
  answer: {
    reply: {
      result: null, DESCRIPTION: '', OPT_STATUS: 'SUCCESS',
      summary: { samples: 8, finished_percent: 99 },
    },
    columns: all,
    state: parse('', 0),
    now: 0,
  },
  columns,
  rows: () => [],
  unit: 'bytes',
  total: columns.total[0],
  leftOut: 0,
  growth: null,
  difference: null,
  value: String,
  changesOf: () => null,
  changeOf: null,
});

const textOf = (shown: Shown): string => totalText(shown).map(({ text }) => text).join('');

test('the totals say of how many processes they are', () => {
  const all = profileOf(['p', 0, ['a', 3], ['b', 5]]);
  const shown = shownOf(all, all);
  const { summary } = shown.answer.reply;
  const words = (process_count: number): string => {
    const reply = { ...shown.answer.reply, summary: { ...summary!, process_count } };
    return textOf({ ...shown, answer: { ...shown.answer, reply } });
  };

  assert.equal(
    words(1753),
    '8.00 B of CPU time in 8 samples of 1,753 processes, 99.00 % with a whole stack',
  );
  assert.match(words(1), /in 8 samples of one process, /);
});

test('the samples of a subtree are its own', () => {
  const all = profileOf(['p', 0, ['a', 3], ['b', 5]]);
  const a = transform(all, { ...defaults, focus: ['a'] });

  assert.equal(
    textOf(shownOf(all, all)), '8.00 B of CPU time in 8 samples, 99.00 % with a whole stack',
  );
  assert.equal(textOf(shownOf(all, a)), '3.00 B of CPU time in 3 samples');
});
