// SPDX-License-Identifier: Apache-2.0
// What an answer says about itself: its sum, and what it lacks.
import type { Summary } from '../api/types';
import { wholesText } from '../profile/change';
import type { Growth } from '../profile/growth';
import { formatValue } from '../profile/values';
import { isSameAt } from '../state/compare';
import { leakOf } from '../state/leak';
import { amounts, events } from '../words/events';
import { lossText } from '../words/losses';
import { summary as words } from '../words/numbers';
import { sentence } from '../words/sentence';
import type { Shown } from './shown';

/** A part of a text, and the sentence that explains it; '': it explains itself. */
export interface Said {
  text: string;
  about: string;
}

/** What an answer says of itself, beside its values. */
export interface Noted {
  summary?: Summary;
  before?: Summary; // of the other selection of a comparison
  unit: string;
  total: number; // of the values
  hasShares: boolean; // a comparison is one of shares
}

export const notedOf = ({ answer: { reply, columns }, difference, unit }: Shown): Noted => ({
  summary: reply.summary,
  before: reply.before_summary,
  unit,
  total: columns?.total[0] ?? 0,
  hasShares: difference?.terms.by === 'share',
});

const plain = (text: string): Said => ({ text, about: '' });

export function totalText({ answer, columns, difference, growth, unit, total }: Shown): Said[] {
  const { samples = 0, finished_percent: whole, process_count: processes } =
    answer.reply.summary ?? {};
  const isHost = answer.state.process === 'Total'; // which has processes, but no stacks

  if (growth) return [plain(grownText(growth, answer, difference, unit))];
  if (difference) {
    const { compare } = answer.state;
    const isSame = compare !== null && isSameAt(answer.state, compare);
    return [plain(wholesText(difference, unit, isSame))];
  }
  if (!answer.columns || !columns) return [];
  const isPart = total < answer.columns.total[0]; // one subtree is shown
  // a preview does not have all samples of the subtree
  const hasSamples = !(isPart && answer.reply.preview);
  const shownSamples = isPart ? columns.samples.total[0] : samples;
  const stacks = {
    text: `${whole?.toFixed(2)} % with a whole stack`,
    about: words.finished_percent,
  };
  return [
    {
      text: `${formatValue(total, unit)} ${sentence(amounts, answer.state.event)}`.trim(),
      about: sentence(events, answer.state.event),
    },
    ...(hasSamples
      ? [
          plain(' in '),
          { text: `${shownSamples.toLocaleString()} samples`, about: words.samples },
        ]
      : []),
    ...(processes === undefined || isHost || isPart
      ? []
      : [plain(' of '), { text: processesText(processes), about: words.process_count }]),
    ...(whole == null || isHost || isPart ? [] : [plain(', '), stacks]),
  ];
}

const processesText = (n: number): string =>
  n === 1 ? 'one process' : `${n.toLocaleString()} processes`;

function grownText(
  { grown, shrunk }: Growth,
  { state, now }: Shown['answer'],
  difference: Shown['difference'],
  unit: string,
): string {
  const values = `${formatValue(grown, unit)} grown, ${formatValue(shrunk, unit)} shrunk`;
  const moment = (time: number): string => new Date(time * 1000).toLocaleString();
  const [from, to] = leakOf(state, now) ?? [];
  const scales = {
    value: '',
    share: ', both selections taken to be equally large',
    second: ', both selections taken to be equally long',
  };

  if (from && to) return `${values}, from ${moment(from)} to ${moment(to)}`;
  return values + (difference ? scales[difference.terms.by] : '');
}

/** A difference has the errors of both selections, and no share. */
export function estimatedText({ summary, before, unit, total }: Noted): Said[] {
  const all = [summary, before].flatMap((s) => s?.estimated ?? []);
  const error = Math.hypot(...all.map((e) => e.error));
  const round = (n: number): string => `${Number((100 * n).toPrecision(2))} %`;
  let range = '';

  if (all.length === 0) return [];
  if (before) range = `, ±${formatValue(error, unit)}`;
  else if (total) range = `, ±${round(error / total)}`;
  const share = Math.min(...all.map((e) => e.share));
  const how =
    share < 0.995 ? `${round(share)} of what happened was measured` : 'from random samples';

  return [{ text: 'estimated', about: words.estimated }, plain(`: ${how}${range}`)];
}

export function throttledText({ summary }: Noted): Said[] {
  const us = summary?.throttled_us ?? 0;

  if (!us) return [];
  return [
    { text: 'throttled', about: words.throttled_us },
    plain(`: the containers' CPU limits held them back for ${formatValue(us, 'microseconds')}`),
  ];
}

export function lossesText(noted: Noted): Said[] {
  const all = ofBoth(noted, (summary) => missing(summary, noted.unit));

  return all.length ? [plain(all.join(' · '))] : [];
}

export function notesText(noted: Noted): Said[] {
  const { before, summary: now, hasShares } = noted;
  const notes = ofBoth(noted, (s) => s.notes ?? []);
  const result = (what: string): string =>
    hasShares ? 'there is nothing to compare with' : `everything counts as ${what}`;

  if (before && !before.profiles)
    notes.push(`before: nothing is stored for this selection, so ${result('grown')}`);
  else if (before && !now?.profiles)
    notes.push(`now: nothing is stored for this selection, so ${result('shrunk')}`);
  return notes.length ? [plain(notes.join(' · '))] : [];
}

/** The notes of an answer. Of two selections, a note of only one says which one. */
function ofBoth({ summary, before }: Noted, said: (summary: Summary) => string[]): string[] {
  const second = summary ? said(summary) : [];
  const first = before ? said(before) : second;
  const only = (when: string, own: string[], other: string[]): string[] =>
    own.filter((t) => !other.includes(t)).map((t) => `${when}: ${t}`);

  return [
    ...second.filter((t) => first.includes(t)),
    ...only('before', first, second),
    ...only('now', second, first),
  ];
}

function missing(
  { losses = [], cut_stacks: cut, short_by: short }: Summary,
  unit: string,
): string[] {
  const parts = losses.map(lossText);

  if (short !== undefined)
    parts.push(
      'too many stacks: the smallest are added up as [others]' +
        (short
          ? `, and another stack's value is too small by at most ${formatValue(short, unit)}`
          : ''),
    );
  if (cut)
    parts.push(
      `too many frames: ${cut.toLocaleString()} of the smallest stacks end in [smaller stacks]; ` +
        'all totals are complete',
    );
  return parts;
}
