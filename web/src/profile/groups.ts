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
  const shareNow = shares(now);
  const shareBefore = before && shares(before);
  const listed = new Set(now.groups.map((g) => g.value));
  const gone = before?.groups.filter((g) => !listed.has(g.value)) ?? [];
  const rest = now.others.groups > 0 ? null : 0; // of a group that is not listed
  const row = (value: string, sums: Sums | null): GroupRow => ({
    value,
    others: 0,
    amount: sums ? amountOf(sums) : rest,
    total: sums?.total ?? 0,
    share: sums ? shareNow(value) : rest,
    before: shareBefore ? shareBefore(value) : null,
    amounts: amountsOf(value, now, before),
  });
  const { others } = now;

  return [
    ...now.groups.map((g) => row(g.value, g)),
    ...gone.map((g) => row(g.value, null)),
    ...(others.total > 0 ? [othersRow(now)] : []),
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

function amountsOf(
  value: string, now: GroupsResult, before: GroupsResult | null,
): GroupRow['amounts'] {
  const of = (all: GroupsResult): Amount | null => {
    const sums = all.groups.find((g) => g.value === value);

    if (sums) return measured(sums);
    return all.others.groups > 0 ? null : { value: 0, samples: 0 };
  };
  const both = { now: of(now), before: before && of(before) };

  return both.now && both.before ? { now: both.now, before: both.before } : null;
}

/** Of a function, or of everything. */
export const measured = (sums: Sums): Amount => ({
  value: amountOf(sums),
  samples: sums.function_samples ?? sums.samples,
});

/** The shares of groups; null: the group may be one of the others. */
function shares(all: GroupsResult): (value: string) => number | null {
  const known = new Map(all.groups.map((g) => [g.value, part(amountOf(g), amountOf(all))]));

  return (value) => known.get(value) ?? (all.others.groups > 0 ? null : 0);
}

const part = (amount: number, whole: number): number => (whole ? amount / whole : 0);

const amountOf = (sums: Pick<Sums, 'total' | 'function_total'>): number =>
  sums.function_total ?? sums.total;
