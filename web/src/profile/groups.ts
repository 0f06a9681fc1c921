// SPDX-License-Identifier: Apache-2.0
// Which values of a tag have a profile, or a function of it: the answer of POST /v1/profile/groups
// as rows.

import type { Amount } from './difference';

/** docs/api.md describes it. */
export interface GroupsResult extends Sums {
  groups: (Sums & { value: string })[]; // '': what does not have the tag
  others: Sums & { groups: number };
}

interface Sums {
  total: number;
  samples: number; // of the total
  function_total?: number; // of a question about a function
  function_samples?: number;
}

export interface GroupRow {
  value: string | null; // null: all others
  others: number; // how many these are
  amount: number | null; // what the row has of the function, or of everything; null: not known
  total: number; // what it has of everything
  share: number | null; // of the amounts of all rows
  before: number | null; // the same of the other selection; null: not known, or there is none
  amounts: { now: Amount; before: Amount } | null; // if both are known
}

/** With the answer for another selection, its shares, too. The greatest amounts come first. */
export function groupRows(now: GroupsResult, before: GroupsResult | null): GroupRow[] {
  const ofNow = amountsIn(now);
  const ofBefore = before && amountsIn(before);
  const listed = new Set(now.groups.map((g) => g.value));
  const gone = before?.groups.filter((g) => !listed.has(g.value)) ?? [];
  const row = (value: string, total: number): GroupRow => {
    const mine = ofNow(value);
    const other = ofBefore && ofBefore(value);

    return {
      value,
      others: 0,
      amount: mine && mine.value,
      total,
      share: mine && part(mine.value, amountOf(now)),
      before: other && part(other.value, amountOf(before!)),
      amounts: mine && other && { now: mine, before: other },
    };
  };

  return [
    ...now.groups.map((g) => row(g.value, g.total)),
    ...gone.map((g) => row(g.value, 0)),
    ...(now.others.total > 0 ? [othersRow(now)] : []),
  ];
}

function othersRow(now: GroupsResult): GroupRow {
  const amount = amountOf(now.others);

  return {
    value: null,
    others: now.others.groups,
    amount,
    total: now.others.total,
    share: part(amount, amountOf(now)),
    before: null,
    amounts: null,
  };
}

/** What each group has; null: it may be one of the others. */
function amountsIn(all: GroupsResult): (value: string) => Amount | null {
  const known = new Map(all.groups.map((g) => [g.value, measured(g)]));

  return (value) => known.get(value) ?? (all.others.groups > 0 ? null : { value: 0, samples: 0 });
}

/** Of a function, or of everything. */
export const measured = (sums: Sums): Amount => ({
  value: amountOf(sums),
  samples: sums.function_samples ?? sums.samples,
});

const part = (amount: number, whole: number): number => (whole ? amount / whole : 0);

const amountOf = (sums: Pick<Sums, 'total' | 'function_total'>): number =>
  sums.function_total ?? sums.total;
