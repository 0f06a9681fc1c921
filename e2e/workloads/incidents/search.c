/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers queries with four threads that need little CPU time each: the whole program is content
 * with a third of a CPU. It is only slow if others use its CPU (batch-export.c).
 */
#include "work.h"

FUNCTION void rank_documents(void)
{
	compute(1000);
}

FUNCTION void wait_for_query(void)
{
	pause_us(10000);
}

FUNCTION void *serve_search(void *arg)
{
	for (;;) {
		wait_for_query();
		rank_documents();
	}
	return arg;
}

int main(void)
{
	stay_on_last_cpu();
	start("query-1", serve_search);
	start("query-2", serve_search);
	start("query-3", serve_search);
	serve_search(NULL);
}
