// SPDX-License-Identifier: Apache-2.0
// The hub's HTTP API. The token lives in this tab only.
import type { TreeResult } from './profile/tree';

export interface Loss {
  reason: string;
  samples: number;
  time_ns?: number;
}

export interface Summary {
  samples: number;
  profiles?: number;
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

export interface Reply {
  OPT_STATUS: string;
  DESCRIPTION: string;
  result: TreeResult | null; // null: nothing was found
  unit?: string;
  summary?: Summary;
  before_summary?: Summary; // of the other selection of a difference
}

export interface Info {
  version: string;
  cluster_name: string;
  auth_required: boolean;
  token_hint: string;
  store_note: string;
  links?: { trace: string; logs: string };
}

export interface Choice {
  value: string;
  samples: number;
}

/** The values of a tag. */
export interface Values {
  values: Choice[];
  truncated: boolean; // there are more
}

/** A tag that only some events have. */
export interface TagOfEvents {
  name: string;
  title: string;
  events: string[];
  unset?: string; // what a query without the tag is about, unless it is everything
}

export interface Selection {
  profile_event_type: string;
  app_service: string;
  tag_filter: string;
  time_start: number;
  time_end: number;
}

/** The hub needs a token, or refuses the one that it got. */
export class SignInError extends Error {}

const TOKEN = 'podflame-token';

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
}

export const hasToken = (): boolean => sessionStorage.getItem(TOKEN) !== null;

/** How many groups the time line shows; the others are one. */
const MAX_GROUPS = 8;

/** A query has 30 s in the hub: no answer for twice that time means that there is no hub. */
const SILENCE_MS = 60_000;

async function call<T>(path: string, signal: AbortSignal, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(TOKEN);

  if (token && /[^!-~]/.test(token))
    throw new SignInError('this is not a token: it has blanks or characters that no token has');
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  const [answer, text] = await exchange(path, signal, {
    method: body ? 'POST' : 'GET',
    headers,
    body: body ? JSON.stringify(body) : undefined,
  });
  const said = parse(text);

  if (answer.status === 401 || answer.status === 403)
    throw new SignInError(said?.DESCRIPTION ?? 'sign in');
  if (!answer.ok) throw new Error(said?.DESCRIPTION || `the hub answered ${answer.status}`);
  if (said === null) throw new Error('the answer does not come from a hub: it is not JSON');
  return said as T;
}

/** A failure throws an error that the hub is away; an abort by the signal throws the abort. */
async function exchange(
  path: string,
  signal: AbortSignal,
  request: RequestInit,
): Promise<[Response, string]> {
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(), SILENCE_MS);

  try {
    const answer = await fetch(path, {
      ...request,
      signal: AbortSignal.any([signal, silent.signal]),
    });
    clearTimeout(timer); // how long a large answer is under way is its line's affair
    const text = await answer.text();
    signal.throwIfAborted();
    return [answer, text];
  } catch (e) {
    signal.throwIfAborted();
    if (silent.signal.aborted)
      throw new Error(`the hub did not answer within ${SILENCE_MS / 1000} s`);
    throw new Error(`the hub cannot be reached: ${e instanceof Error ? e.message : e}`);
  } finally {
    clearTimeout(timer);
  }
}

function parse(text: string): { DESCRIPTION?: string } | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const info = (signal: AbortSignal): Promise<Info> => call<Info>('/v1/info', signal);

/** How far before a time its snapshot may lie: the longest window, and its way to the hub. */
export const SNAPSHOT_S = 90;

/** The snapshot of live memory at a time. */
export const snapshot = (s: Selection, time: number): Selection => ({
  ...s,
  time_start: time - SNAPSHOT_S,
  time_end: time,
});

/** With `before`, the difference from that selection to the other one. */
export const profile = (s: Selection, before: Selection | null, signal: AbortSignal) =>
  call<Reply>('/v1/profile/tree', signal, {
    ...s,
    before: before ?? undefined,
    profile_language_type: 'eBPF',
  });

export async function tagsOfEvents(signal: AbortSignal): Promise<TagOfEvents[]> {
  const reply = await call<{ result: Partial<TagOfEvents>[] | null }>('/v1/profile/tags', signal);

  return (reply.result ?? []).filter((t): t is TagOfEvents => t.events !== undefined);
}

/** Values of steps of time. docs/api.md describes it. */
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

/** With a tag, the greatest groups of its values. */
export const series = async (s: Selection, tag: string, signal: AbortSignal): Promise<Series> => {
  const body = { ...s, group_by: tag, limit: MAX_GROUPS, profile_language_type: 'eBPF' };

  return (await call<{ result: Series }>('/v1/profile/series', signal, body)).result;
};

/** The values of each tag with the most samples, at most so many, among which a user can choose. */
export async function choices(
  tags: string[],
  s: Selection,
  limit: number,
  signal: AbortSignal,
): Promise<Record<string, Values>> {
  const reply = await call<{ result: Record<string, Values> | null }>(
    '/v1/profile/choices',
    signal,
    { ...s, tags, limit },
  );

  return reply.result ?? {};
}
