// SPDX-License-Identifier: Apache-2.0
// Questions to the hub and its answers. docs/api.md describes them.
import type { GroupsResult } from '../profile/groups';
import type { TreeResult } from '../profile/tree';
import type { Described } from '../state/tags';
import type { Loss } from '../words/losses';

export interface Summary {
  samples: number;
  profiles?: number;
  process_count?: number; // hubs of earlier versions do not say it
  estimated?: { share: number; error: number }; // of what happened; one standard error, in the unit
  throttled_us?: number; // off-cpu: that containers were not let run
  finished_percent?: number | null; // samples whose stack is whole
  truncated?: boolean;
  cut_stacks?: number; // whose ends are in [smaller stacks]: there were too many nodes
  // only if there were too many stacks: the value of a stack is too small by at most that
  short_by?: number;
  losses?: Loss[];
  notes?: string[];
}

export interface Info {
  version: string;
  cluster_name: string;
  auth_required: boolean;
  token_hint: string;
  store_note: string;
  // hubs of earlier versions do not say these
  time?: number; // Unix seconds by the hub's clock
  links?: { trace: string; logs: string };
  tags?: StoredTag[];
  files?: HubFile[];
}

/** A format in which the hub gives a selection as a file. */
export interface HubFile {
  name: string; // the end of its path
  ending: string;
  title: string;
  about: string;
}

/** A tag of `tag_filter`. */
export interface StoredTag extends Described {
  stored: boolean;
  same_as: string; // another name of the tag, under which it is stored
}

export interface Selection {
  profile_event_type: string;
  app_service: string;
  tag_filter: string;
  time_start: number;
  time_end: number;
  unnamed?: 'start'; // functions without a name are told apart by where they begin
}

/** With `before`, the difference from that selection to the other one. */
export interface ProfileQuestion extends Selection {
  before?: Selection;
  group_by?: string; // the tag whose values are the first level
  by_line?: boolean;
}

/** A preview has only the nodes that have a width in a picture. */
export interface Reply {
  OPT_STATUS: string;
  DESCRIPTION: string;
  result: TreeResult | null; // null: nothing was found
  unit?: string;
  summary?: Summary;
  before_summary?: Summary; // of the other selection of a difference
  preview?: boolean;
}

/** Which values of a tag have the selection, or a function of it. */
export interface GroupsQuestion extends Selection {
  group_by: string;
  function?: { name: string; kind?: string };
}

export interface GroupsReply {
  result: GroupsResult;
  unit: string;
  summary: Summary;
}

/** `group_by`: the tag by whose values the answer is split; '': none. */
export interface SeriesQuestion extends Selection {
  group_by: string;
}

/** Values of steps of time. */
export interface Series {
  unit: string;
  start: number; // Unix seconds
  step: number; // seconds
  steps: number;
  groups: { value: string | null; values: number[] }[]; // null: what does not have the tag
  others: number[] | null;
  losses: { reason: string; samples: number[]; time_ns: number[] }[];
  starts: number[]; // Unix seconds when processes began
  more_starts: boolean;
}

/** Why a selection has no data, and what to do or to choose instead. */
export interface Reason {
  reason: string;
  text: string;
  command: string | null;
  tag?: string; // without the conditions on it there is data, for example of these values
  values?: string[];
  samples?: number; // that there are without the conditions
  events?: string[]; // that have data
  time_start?: number; // a time that has data
  time_end?: number;
  losses?: Loss[];
}

/** From when on the hub has data of a namespace. */
export interface Oldest {
  cluster: string | null; // null: the hub's own
  namespace: string | null; // null: what belongs to none, or what could not be verified
  unverified: boolean;
  oldest: number; // Unix seconds: nothing from before is stored
  deleted_until: number | null; // its profiles until then were deleted: the store was full
}

export interface ChoicesQuestion extends Selection {
  tags: string[];
}

/** `tag`: the one whose values are asked for. */
export interface ValuesQuestion extends Selection {
  tag: string;
}

export interface ValuesReply {
  result: Choice[];
  truncated: boolean; // there are more
}

export interface Choice {
  value: string;
  samples: number;
}

/** The values of a tag with the most samples. */
export interface Values {
  values: Choice[];
  truncated: boolean; // there are more
}
