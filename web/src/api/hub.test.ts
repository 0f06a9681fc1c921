// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import test from 'node:test';
import { callWithPreview } from './hub';
import { hub } from './queries';
import type { ProfileQuestion } from './types';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

type Ask = (signal: AbortSignal, onPreview: (preview: unknown) => void) => Promise<unknown>;

const call: Ask = (signal, onPreview) => callWithPreview('/x', signal, {}, onPreview);

/** What a call gives, and the previews before, if the hub's answer comes in these pieces. */
async function exchange(type: string, pieces: Uint8Array[], status = 200, ask = call) {
  const previews: unknown[] = [];
  const real = globalThis.fetch;
  const body = new ReadableStream({
    start(stream) {
      for (const piece of pieces) stream.enqueue(piece);
      stream.close();
    },
  });

  globalThis.fetch = async () => new Response(body, { status, headers: { 'Content-Type': type } });
  try {
    const { signal } = new AbortController();
    const said = await ask(signal, (preview) => previews.push(preview));

    return { said, previews };
  } finally {
    globalThis.fetch = real;
  }
}

const LINES = 'application/x-ndjson';

test('a preview is the first of two lines, wherever the answer is cut into pieces', async () => {
  const all = bytes('{"a":"ü"}\n{"b":"ü"}');

  for (let first = 0; first <= all.length; first++)
    for (let second = first; second <= all.length; second += 3)
      assert.deepEqual(
        await exchange(LINES, [
          all.subarray(0, first), all.subarray(first, second), all.subarray(second),
        ]),
        { said: { b: 'ü' }, previews: [{ a: 'ü' }] },
      );
});

test('an answer of one document has no preview', async () => {
  assert.deepEqual(await exchange('application/json', [bytes('{"a":\n1}')]), {
    said: { a: 1 }, previews: [],
  });
});

test('an answer that ends after its preview, and a refusal, are errors', async () => {
  await assert.rejects(exchange(LINES, [bytes('{"a":1}\n')]), /not JSON/);
  await assert.rejects(exchange(LINES, [bytes('{"a":1}\n{"b"')]), /not JSON/);
  await assert.rejects(
    exchange('application/json', [bytes('{"DESCRIPTION":"too much"}')], 500), /too much/,
  );
});

test('what is wrong with a preview is no error', async () => {
  const fails: Ask = (signal) =>
    callWithPreview('/x', signal, {}, () => {
      throw new Error('damaged');
    });

  assert.deepEqual(await exchange(LINES, [bytes('<\n{"a":1}')]), { said: { a: 1 }, previews: [] });
  assert.deepEqual((await exchange(LINES, [bytes('{}\n{"a":1}')], 200, fails)).said, { a: 1 });
});

test('a profile that fails after its preview is an error, whatever the status says', async () => {
  const profile: Ask = (signal, onPreview) =>
    hub.profile({} as ProfileQuestion, signal, onPreview);
  const lines = '{"preview":true}\n{"OPT_STATUS":"FAIL","DESCRIPTION":"too large"}';

  await assert.rejects(exchange(LINES, [bytes(lines)], 200, profile), /^Error: too large$/);
});
