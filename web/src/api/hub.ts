// SPDX-License-Identifier: Apache-2.0
// One request to the hub, and its answer or error. The token lives in this tab only. A proxy in
// front of the hub may sign the user in instead (docs/page.md).
import { errorText } from '../words/error';

/** The hub needs a token, or refuses the one that it got. */
export class SignInError extends Error {}

const TOKEN = 'podflame-token';

let token = keptToken(); // null: there is none

/** A browser that blocks its storage has the token until the user leaves the page. */
export function setToken(text: string): void {
  token = text.trim();
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // the user signs in again after a reload
  }
}

export const hasToken = (): boolean => token !== null;

let isProxied = false; // a proxy adds a token to the requests of the page

/** The hub, which needs a token, has answered a request of the page without one. */
export function noteProxy(): void {
  isProxied = true;
}

function keptToken(): string | null {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return null;
  }
}

const LOADED = 'podflame-loaded-again'; // when, in milliseconds since 1970
const LOADED_MS = 60_000;
let isLoading = false; // again: what else is refused until then is no news

/**
 * Loads the page again: without a session of its own, a proxy then asks the user to sign in.
 * Returns false if that was done less than a minute ago, or cannot be noted.
 */
function loadAgain(): boolean {
  if (isLoading) return true;
  try {
    if (Date.now() - Number(sessionStorage.getItem(LOADED)) < LOADED_MS) return false;
    sessionStorage.setItem(LOADED, String(Date.now()));
  } catch {
    return false;
  }
  location.reload();
  isLoading = true;
  return true;
}

/** A query has 30 s in the hub: no answer for twice that time means that there is no hub. */
const SILENCE_MS = 60_000;

/** What the hub says: JSON. */
export async function call<T>(path: string, signal: AbortSignal, body?: unknown): Promise<T> {
  const [answer, text] = await exchange(path, signal, requestOf(body), (a) => a.text());

  return content<T>(answer, text);
}

/**
 * The same, of an answer that may have a preview of it on a line before it. What is wrong with the
 * preview is no error.
 */
export async function callWithPreview<T>(
  path: string,
  signal: AbortSignal,
  body: unknown,
  onPreview: (said: T) => void,
): Promise<T> {
  const [answer, text] = await exchange(path, signal, requestOf(body), (a) =>
    a.headers.get('Content-Type') === 'application/x-ndjson'
      ? lastLine(a, (line) => {
          const said = parse(line);

          if (said !== null && !signal.aborted) onPreview(said as T);
        })
      : a.text(),
  );

  return content<T>(answer, text);
}

/** Gives the first line when it has come. Ends with what comes behind it. */
async function lastLine(answer: Response, onFirst: (line: string) => void): Promise<string> {
  const reader = answer.body!.getReader();
  let pieces: BlobPart[] = [];
  let isFirst = true;

  for (;;) {
    const { done, value } = await reader.read();
    const end = isFirst ? (value?.indexOf(NEW_LINE) ?? -1) : -1;

    if (done) return new Blob(pieces).text();
    if (end < 0) {
      pieces.push(value);
      continue;
    }
    try {
      onFirst(await new Blob([...pieces, value.subarray(0, end)]).text());
    } catch {
      // if the whole is wrong, too, its error is told
    }
    pieces = [value.subarray(end + 1)];
    isFirst = false;
  }
}

const NEW_LINE = 10;

function content<T>(answer: Response, text: string): T {
  const said = parse(text);

  if (!answer.ok) throw refusal(answer.status, said);
  if (said === null) throw new Error('the answer does not come from a hub: it is not JSON');
  return said as T;
}

/** A file that the hub makes. */
export async function file(path: string, signal: AbortSignal, body: unknown): Promise<Blob> {
  const [{ ok, status }, blob] = await exchange(path, signal, requestOf(body), (a) => a.blob());

  if (!ok) throw refusal(status, parse(await blob.text()));
  return blob;
}

function requestOf(body: unknown): RequestInit {
  // of such a request, oauth2-proxy says 401 when its session is over; others, it redirects
  const headers: Record<string, string> = { Accept: 'application/json' };

  if (token && /[^!-~]/.test(token))
    throw new SignInError('this is not a token: it has blanks or characters that no token has');
  if (token) headers.Authorization = `Bearer ${token}`;
  if (!body) return { method: 'GET', headers };
  headers['Content-Type'] = 'application/json';
  return { method: 'POST', headers, body: JSON.stringify(body) };
}

function refusal(status: number, said: Said): Error {
  // a proxy in front of the hub refuses without a reason; the hub says why it refuses, such as that
  // the token which the proxy added has just expired
  const isOfProxy = !said?.DESCRIPTION || (isProxied && !hasToken());

  if (status === 401 && isOfProxy && loadAgain())
    return new Error('the session is over: the page is loaded again');
  if (status === 401 || status === 403)
    return new SignInError(said?.DESCRIPTION || 'a proxy in front of the hub refuses the request');
  return new Error(said?.DESCRIPTION || `the hub answered ${status}`);
}

/** A failure throws an error that the hub is away; an abort by the signal throws the abort. */
async function exchange<T>(
  path: string,
  signal: AbortSignal,
  request: RequestInit,
  read: (answer: Response) => Promise<T>,
): Promise<[Response, T]> {
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(), SILENCE_MS);

  try {
    const answer = await fetch(path, {
      ...request,
      signal: AbortSignal.any([signal, silent.signal]),
    });
    clearTimeout(timer); // how long a large answer is under way is its line's affair
    const content = await read(answer);
    signal.throwIfAborted();
    return [answer, content];
  } catch (e) {
    signal.throwIfAborted();
    if (silent.signal.aborted)
      throw new Error(`the hub did not answer within ${SILENCE_MS / 1000} s`);
    throw new Error(`the hub cannot be reached: ${errorText(e)}`);
  } finally {
    clearTimeout(timer);
  }
}

type Said = { DESCRIPTION?: string } | null; // null: it is not JSON

function parse(text: string): Said {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
