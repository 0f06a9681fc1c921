// SPDX-License-Identifier: Apache-2.0
// A part of the page that may fail, for example because of an answer that is damaged: then its
// place says so, and the rest of the page lives.
import type { ComponentChildren } from 'preact';
import { useErrorBoundary, useRef } from 'preact/hooks';
import { errorText } from '../words/error';
import { useLatest } from './latest';

interface Props {
  what: string; // "the time line"
  /** What the part is made of: it is shown again when one of these changes. Always as many. */
  of?: readonly unknown[];
  /** What else the user can do than to have it shown again. */
  otherwise?: ComponentChildren;
  children: ComponentChildren;
}

export function Guard({ what, of = [], otherwise, children }: Props) {
  const newest = useLatest(of);
  const failed = useRef(of); // what it was made of when it failed
  const [error, again] = useErrorBoundary((e) => {
    failed.current = newest.current;
    console.error(e);
  });

  // no effect resets it: an error that comes while one is handled would go to the Guard above
  if (error === undefined || of.some((part, i) => part !== failed.current[i]))
    return <>{children}</>;
  return (
    <div role="alert" class="banner failed">
      <p>The page cannot show {what}: {errorText(error)}</p>
      <button onClick={again}>show it again</button> {otherwise}
    </div>
  );
}
