/* SPDX-License-Identifier: Apache-2.0 */
/* A job that takes all of the CPU that it gets, with three threads: because of it, search waits. */
#include "work.h"

FUNCTION void compress_rows(void)
{
	compute(50000);
}

FUNCTION void *export_rows(void *arg)
{
	for (;;)
		compress_rows();
	return arg;
}

int main(void)
{
	stay_on_last_cpu();
	start("export-1", export_rows);
	start("export-2", export_rows);
	export_rows(NULL);
}
