// SPDX-License-Identifier: Apache-2.0
// The files that the page can save. It makes pictures and the table itself, the hub the others.
import { hub } from '../api/queries';
import type { HubFile, Selection } from '../api/types';
import { csvOf } from '../files/csv';
import { pictureOf, type Picture } from '../files/picture';
import { MOST_HEIGHT, pngOf } from '../files/png';
import { svgOf } from '../files/svg';
import type { FlameGraph } from '../flame/flame';
import type { State } from '../state/state';
import { isBreakdown, isRequest } from './questions';
import type { Shown } from './shown';

/** What a file is made of. */
export interface Source {
  shown: Shown;
  selection: Selection; // of the answer that is shown
  heading: string;
  graph: FlameGraph | null; // null: none is on the page
}

/** The content of a file. */
interface Made {
  content: BlobPart;
  lacks: string; // what is not in it; '': nothing
}

export interface Format {
  ending: string;
  title: string;
  about: string;
  /** Whether the view of a state shows what the file has. */
  isOf: (state: State) => boolean;
  make: (source: Source) => Promise<Made> | Made;
}

const whole = (content: BlobPart): Made => ({ content, lacks: '' });

function picture({ graph, heading }: Source, mostHeight?: number): Picture {
  if (!graph) throw new Error('There is no flame graph in this view. Choose one that has it.');
  return pictureOf(graph, heading, mostHeight);
}

const hasGraph = ({ view }: State): boolean => view !== 'table' && view !== 'breakdown';
const hasFunctions = (state: State): boolean => !isRequest(state) && !isBreakdown(state);

const ofPage: Format[] = [
  {
    ending: 'svg',
    title: 'SVG',
    about: 'the flame graph, with the words of each frame',
    isOf: hasGraph,
    make: (source) => whole(svgOf(picture(source))),
  },
  {
    ending: 'png',
    title: 'PNG',
    about: 'the flame graph, for chats and documents',
    isOf: hasGraph,
    make: async (source) => {
      const drawn = picture(source, MOST_HEIGHT);
      const { leftOut } = drawn;
      const lacks =
        `The picture lacks the ${leftOut.toLocaleString()} rows that are farthest from the ` +
        'root: browsers make no higher one. The SVG has all rows.';

      return { content: await pngOf(drawn), lacks: leftOut ? lacks : '' };
    },
  },
  {
    ending: 'csv',
    title: 'CSV',
    about: 'the functions, for a spreadsheet',
    isOf: hasFunctions,
    make: ({ shown: { rows, unit, total, columns, difference, growth } }) =>
      whole(csvOf(rows(), {
        unit,
        now: { whole: total },
        before: { whole: columns?.before?.total[0] ?? 0, scale: difference?.scale },
        isGrowth: growth !== null,
      })),
  },
];

const ofHub = ({ name, ...words }: HubFile): Format => ({
  ...words,
  isOf: () => true,
  make: async ({ selection }) =>
    whole(await hub.file(name, selection, AbortSignal.timeout(120_000))),
});

interface Group {
  heading: string;
  formats: Format[];
}

/** The files that can be made in the view of a state: by the page, and by the hub. */
export const groupsOf = (state: State, files: HubFile[]): Group[] =>
  [
    { heading: 'What is shown', formats: ofPage.filter((f) => f.isOf(state)) },
    { heading: 'The selection, also what is hidden or folded here', formats: files.map(ofHub) },
  ].filter(({ formats }) => formats.length > 0);
