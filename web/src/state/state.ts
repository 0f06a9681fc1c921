// SPDX-License-Identifier: Apache-2.0
// What the user has chosen. The address holds all of it (address.ts).
import type { Fold, FunctionId } from '../profile/folds';
import type { Per } from '../profile/per';
import type { Order } from '../profile/table';
import type { Filter } from './filter';

/** Seconds back from now, or a stretch of time in Unix seconds. */
export type Times = { last: number } | { from: number; to: number };

/** The other selection of a comparison, which counts as the earlier one. */
export interface Compare {
  times: Times;
  process: string;
  filter: Filter;
}

export type ViewName = 'graph' | 'sandwich' | 'table' | 'breakdown' | 'request';

export interface State {
  event: string; // profile_event_type
  times: Times;
  process: string; // app_service; '': all
  filter: Filter;
  compare: Compare | null;
  grown: boolean; // of a comparison: the graph has only what is more than before, by how much
  view: ViewName;
  by: string; // the tag by whose values time line and breakdown are split; '': none
  fn: FunctionId | null; // the function that sandwich, table and breakdown are about
  fold: Fold;
  hidden: FunctionId[];
  without: FunctionId[]; // stacks that have one of these are left out
  withoutIdle: boolean; // off-cpu: waits of threads that had nothing to do are left out
  // paths, as profile/path.ts makes them
  focus: string[]; // to the frame whose subtree is the whole
  zoom: string[]; // to the frame that fills the graph's width
  byLine: boolean; // functions are told apart by file and line
  byStart: boolean; // functions without a name are told apart by where they begin
  colours: 'kind' | 'module' | 'difference';
  per: Per['per'];
  search: string;
  upward: boolean; // the root is at the bottom
  short: boolean; // names without type arguments
  sort: Order;
  durationUs: number | null; // of the one request
}

/** What is chosen where the address says nothing. */
export const defaults: State = {
  event: 'on-cpu',
  times: { last: 900 },
  process: '',
  filter: { conditions: [] },
  compare: null,
  grown: false,
  view: 'graph',
  by: '',
  fn: null,
  fold: { threads: 'pools', recursion: false, libraries: false, runtimes: false },
  hidden: [],
  without: [],
  withoutIdle: false,
  focus: [],
  zoom: [],
  byLine: false,
  byStart: false,
  colours: 'kind',
  per: 'all',
  search: '',
  upward: false,
  short: false,
  sort: { column: 'self', descending: true },
  durationUs: null,
};

/** How a view changes what is chosen. `push`: the browser's "back" undoes it. */
export type Change = (part: Partial<State>, how?: 'push' | 'replace') => void;
