// SPDX-License-Identifier: Apache-2.0
// When the page is first rendered.
import { useEffect, useState } from 'preact/hooks';
import type { Answers } from './asker';

const PATIENCE_MS = 50;

/**
 * Whether to render the page: once it has asked for the profile, so that the hub works meanwhile,
 * or after a moment.
 */
export function useBegun({ info, error, signIn }: Answers): boolean {
  const [isLate, setLate] = useState(false);

  useEffect(() => {
    const timer = setTimeout(() => setLate(true), PATIENCE_MS);

    return () => clearTimeout(timer);
  }, []);
  return isLate || info !== null || error !== '' || signIn !== null;
}
