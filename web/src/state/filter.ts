// SPDX-License-Identifier: Apache-2.0
// The filter of a selection.

export interface Condition {
  tag: string;
  op: '=' | '!=' | 'IN' | 'NOT IN' | 'REGEXP' | 'NOT REGEXP';
  values: string[];
}

/** Conditions that are all required, or text that says more than conditions can. */
export type Filter = { conditions: Condition[] } | { text: string };
