// SPDX-License-Identifier: Apache-2.0
// One request to the hub, and its answer or error. The token lives in this tab only.

/** The hub needs a token, or refuses the one that it got. */
export class SignInError extends Error {}

const TOKEN = 'podflame-token';

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
}

export const hasToken = (): boolean => sessionStorage.getItem(TOKEN) !== null;

/** A query has 30 s in the hub: no answer for twice that time means that there is no hub. */
const SILENCE_MS = 60_000;

export async function call<T>(path: string, signal: AbortSignal, body?: unknown): Promise<T> {
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
