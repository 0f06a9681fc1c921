/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens when an assertion fails: the program logs the assertion and aborts. The DaemonSet
 * starts it again.
 */
#include "lib/base/base.h"

#include <stdlib.h>

void assert_failed(const char *expression, const char *file, int line)
{
	log_err("%s:%d: assertion failed: %s", file, line, expression);
	abort();
}
