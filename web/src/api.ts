// SPDX-License-Identifier: Apache-2.0
// The hub's HTTP API. The token lives in this tab only.
import type { Reply } from './profile';

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

export interface Selection {
  profile_event_type: string;
  app_service: string;
  tag_filter: string;
  time_start: number;
  time_end: number;
}

/** The hub wants a token, or the one it got is not good enough. */
export class SignInError extends Error {}

const TOKEN = 'podflame-token';

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
}

export const hasToken = (): boolean => sessionStorage.getItem(TOKEN) !== null;

async function call<T>(path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(TOKEN);

  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  const answer = await fetch(path, { method: body ? 'POST' : 'GET', headers, body: body ? JSON.stringify(body) : undefined });
  const text = await answer.text();
  const said = parse(text);

  if (answer.status === 401 || answer.status === 403) throw new SignInError(said?.DESCRIPTION ?? 'sign in');
  if (!answer.ok) throw new Error(said?.DESCRIPTION || `the hub answered ${answer.status}`);
  return said as T;
}

function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const info = (): Promise<Info> => call<Info>('/v1/info');

/** How far before a time its snapshot may lie: the longest window, and what it takes on its way. */
const SNAPSHOT_S = 90;

/** What lived at a time. */
export const snapshot = (s: Selection, time: number): Promise<Reply> => profile({ ...s, time_start: time - SNAPSHOT_S, time_end: time });

export const profile = (s: Selection): Promise<Reply> =>
  call<Reply>('/v1/profile/ProfileTracing', {
    ...s,
    app_service: s.app_service || undefined,
    profile_language_type: 'eBPF',
    result_format: 'flat',
  });

export async function values(tag: string, s: Selection): Promise<Choice[]> {
  const reply = await call<{ result: Choice[] | null }>('/v1/profile/values', { tag, ...s, limit: 500 });

  return reply.result ?? [];
}
