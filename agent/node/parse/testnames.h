/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: what the parse child cannot do in a build of theirs. */
#pragma once

#include <stdbool.h>

/* Its limits leave a sanitizer no room: then frames have no names. */
static inline bool names_missing(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}
