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

const whole = 'all stacks of the selection, whatever is hidden or folded here';

export const formats: Format[] = [
  {
    ending: 'svg',
    title: 'SVG',
    about: 'the flame graph as it is shown; each frame has its words as a title',
    make: (source) => svgOf(picture(source)),
  },
  {
    ending: 'png',
    title: 'PNG',
    about: 'the flame graph as it is shown, as a picture for chats and documents',
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
    about: 'the functions with their values, for a spreadsheet',
    make: ({ shown }) =>
      csvOf(shown.rows, shown.unit, {
        now: shown.total,
        before: shown.columns?.before?.total[0] ?? 0,
      }),
  },
  {
    ending: 'folded.txt',
    title: 'Folded stacks',
    about: `${whole}, one in each line (for flamegraph.pl)`,
    make: ofHub('folded'),
  },
  {
    ending: 'pb.gz',
    title: 'pprof',
    about: `${whole} (for go tool pprof)`,
    make: ofHub('pprof'),
  },
  {
    ending: 'speedscope.json',
    title: 'speedscope',
    about: `${whole} (for speedscope.app)`,
    make: ofHub('speedscope'),
  },
];
