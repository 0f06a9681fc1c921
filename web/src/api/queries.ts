// SPDX-License-Identifier: Apache-2.0
// What the page asks the hub.
import { call, callWithPreview, file, noteProxy, SignInError } from './hub';
import type * as types from './types';

/** How many groups the time line shows; the others are one. */
const MAX_GROUPS = 8;

/** The most values that a choice offers. */
const MAX_VALUES = 500;

const language = { profile_language_type: 'eBPF' };

async function result<T>(path: string, signal: AbortSignal, body?: unknown): Promise<T | null> {
  return (await call<{ result: T | null }>(path, signal, body)).result;
}

export const hub = {
  // the browser has asked for it when the page began (index.html)
  info: (signal: AbortSignal) => call<types.Info>('/v1/info', signal),

  /** Whether the hub answers without a token of the page: a proxy may add one to its requests. */
  isSignedIn: (signal: AbortSignal): Promise<boolean> =>
    call('/v1/profile/tags', signal).then(
      () => {
        noteProxy();
        return true;
      },
      (e) => {
        if (e instanceof SignInError) return false;
        throw e;
      },
    ),

  /** Before a large profile, onPreview gets a preview of it. */
  async profile(
    question: types.ProfileQuestion,
    signal: AbortSignal,
    onPreview?: (preview: types.Reply) => void,
  ): Promise<types.Reply> {
    const body = { ...question, ...language };
    const reply = onPreview
      ? await callWithPreview('/v1/profile/tree', signal, { ...body, preview: true }, onPreview)
      : await call<types.Reply>('/v1/profile/tree', signal, body);

    // the hub has sent its status before it made the whole
    if (reply.OPT_STATUS !== 'SUCCESS') throw new Error(reply.DESCRIPTION);
    return reply;
  },

  groups: (question: types.GroupsQuestion, signal: AbortSignal) =>
    call<types.GroupsReply>('/v1/profile/groups', signal, { ...question, ...language }),

  /** The profile of a selection as a file. */
  file: (format: string, question: types.Selection, signal: AbortSignal) =>
    file(`/v1/profile/${format}`, signal, { ...question, ...language }),

  /** With a tag, the greatest groups of its values. */
  series: async (question: types.SeriesQuestion, signal: AbortSignal): Promise<types.Series> =>
    (await result<types.Series>('/v1/profile/series', signal, {
      ...question,
      limit: MAX_GROUPS,
      ...language,
    }))!,

  /** Why a selection has no data, the likely reasons first. */
  why: async (question: types.Selection, signal: AbortSignal): Promise<types.Reason[]> =>
    (await result<types.Reason[]>('/v1/profile/why', signal, { ...question, ...language })) ?? [],

  /** From when on there is data of each namespace that the user may see. */
  oldest: (signal: AbortSignal) =>
    call<{ result: types.Oldest[]; notes?: string[] }>('/v1/profile/oldest', signal),

  /** The values of each tag, among which a user can choose. */
  choices: async (
    question: types.ChoicesQuestion,
    signal: AbortSignal,
  ): Promise<Record<string, types.Values>> =>
    (await result<Record<string, types.Values>>('/v1/profile/choices', signal, {
      ...question,
      limit: MAX_VALUES,
    })) ?? {},

  values: async (
    question: types.ValuesQuestion,
    signal: AbortSignal,
  ): Promise<types.Values> => {
    const { result: values, truncated } = await call<types.ValuesReply>(
      '/v1/profile/values',
      signal,
      { ...question, limit: MAX_VALUES },
    );

    return { values, truncated };
  },
};

export type Hub = typeof hub;
