// SPDX-License-Identifier: Apache-2.0
// The files that the page can save. It makes pictures and the table itself, the hub the others.
import { hub } from '../api/queries';
import type { FileFormat, Selection } from '../api/types';
import { csvOf } from '../files/csv';
import { pictureOf, type Picture } from '../files/picture';
import { MOST_HEIGHT, pngOf } from '../files/png';
import { svgOf } from '../files/svg';
import type { FlameGraph } from '../flame/flame';
import type { Shown } from './shown';

/** What a file is made of. */
export interface Source {
  shown: Shown;
  selection: Selection; // of the answer that is shown
  heading: string;
  graph: FlameGraph | null; // null: none is on the page
}

export interface Format {
  ending: string;
  title: string;
  about: string;
  make: (source: Source) => Promise<Blob | string> | string;
  /** What the file lacks; '': nothing. */
  lacks?: (source: Source) => string;
}

function picture({ graph, heading }: Source, mostHeight?: number): Picture {
  if (!graph) throw new Error('There is no flame graph in this view. Choose one that has it.');
  return pictureOf(graph, heading, mostHeight);
}

const ofHub = (format: FileFormat) => (source: Source): Promise<Blob> =>
  hub.file(format, source.selection, AbortSignal.timeout(120_000));

const ofPage: Format[] = [
  {
    ending: 'svg',
    title: 'SVG',
    about: 'the flame graph, with the words of each frame',
    make: (source) => svgOf(picture(source)),
  },
  {
    ending: 'png',
    title: 'PNG',
    about: 'the flame graph, for chats and documents',
    make: (source) => pngOf(picture(source, MOST_HEIGHT)),
    lacks: (source) => {
      const { leftOut } = picture(source, MOST_HEIGHT);
      return leftOut
        ? `The picture lacks the ${leftOut.toLocaleString()} rows that are farthest from the ` +
            'root: browsers make no higher one. The SVG has all rows.'
        : '';
    },
  },
  {
    ending: 'csv',
    title: 'CSV',
    about: 'the functions, for a spreadsheet',
    make: ({ shown: { rows, unit, total, columns, difference, growth } }) =>
      csvOf(rows, {
        unit,
        now: { whole: total },
        before: { whole: columns?.before?.total[0] ?? 0, scale: difference?.scale },
        isGrowth: growth !== null,
      }),
  },
];

const ofTheHub: Format[] = [
  {
    ending: 'folded.txt',
    title: 'Folded stacks',
    about: 'for flamegraph.pl: a line for each stack',
    make: ofHub('folded'),
  },
  { ending: 'pb.gz', title: 'pprof', about: 'for go tool pprof', make: ofHub('pprof') },
  {
    ending: 'speedscope.json',
    title: 'speedscope',
    about: 'for speedscope.app',
    make: ofHub('speedscope'),
  },
];

export const groups: { heading: string; formats: Format[] }[] = [
  { heading: 'What is shown', formats: ofPage },
  { heading: 'The selection, also what is hidden or folded here', formats: ofTheHub },
];
