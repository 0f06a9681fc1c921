// SPDX-License-Identifier: Apache-2.0

/** What is thrown in words; null: ''. */
export const errorText = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown ?? '');
