// SPDX-License-Identifier: Apache-2.0
// A part of the page that may fail, for example because of an answer that is damaged: then its
// place says so, and the rest of the page lives.
import type { ComponentChildren } from 'preact';
import { useErrorBoundary, useLayoutEffect } from 'preact/hooks';
import { errorText } from '../words/error';

interface Props {
  what: string; // "the time line"
  /** What the part is made of: it is shown again when one of these changes. Always as many. */
  of?: readonly unknown[];
  /** What else the user can do than to have it shown again. */
  otherwise?: ComponentChildren;
  children: ComponentChildren;
}

export function Guard({ what, of = [], otherwise, children }: Props) {
  const [error, again] = useErrorBoundary((e) => console.error(e));

  // biome-ignore lint/correctness/useExhaustiveDependencies: they are what the part is made of
  useLayoutEffect(again, of);
  if (error === undefined) return <>{children}</>;
  return (
    <div role="alert" class="banner failed">
      <p>The page cannot show {what}: {errorText(error)}</p>
      <button onClick={again}>show it again</button> {otherwise}
    </div>
  );
}
