// SPDX-License-Identifier: Apache-2.0
// What the page says of the oldest data of a namespace.
import type { Oldest } from '../api/types';
import { inert } from '../profile/names';
import { utc } from '../state/times';

/** Whose data it is: "app", or "app in cluster edge". */
export function placeText({ cluster, namespace, unverified }: Oldest): string {
  const none = unverified ? 'pods that the hub could not verify' : 'no namespace';
  const name = namespace === null ? none : inert(namespace);

  return cluster === null ? name : `${name} in cluster ${inert(cluster)}`;
}

export const sinceText = ({ oldest }: Oldest): string => utc(oldest);

/** Until when the hub deleted data because the store was full. */
export const deletedText = ({ deleted_until: until }: Oldest): string =>
  until === null ? 'nothing' : utc(until);
