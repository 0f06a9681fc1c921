/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: whether there is the engine that e2e/clickhouse/run.sh starts. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Skips the test, and says so, if there is no engine. */
static inline void need_engine(void)
{
	if (getenv("CLICKHOUSE_URL"))
		return;
	print_message("skip: CLICKHOUSE_URL is not set\n");
	skip();
}
