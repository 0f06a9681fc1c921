/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: shows whether the parse child can work in this build. */
#pragma once

#include <stdbool.h>

/*
 * Returns whether names are missing. With a sanitizer, the child's limits are too small, so it
 * makes no index and frames have no names.
 */
static inline bool names_missing(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}
