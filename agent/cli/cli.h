/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: verbs that do one thing and end; one file a verb. argv[0] is the verb.
 * Each returns the exit status: 0, 1 (could not), 2 (bad usage).
 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Flushes standard output. 0 if everything was written, else -errno: a full disk must not look like
 * a complete answer.
 */
static inline int cli_flush(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return errno ? -errno : -EIO;
}

/* The process of a thread: /proc/TID exists, too. 0: it cannot be read. */
uint32_t cli_process_of(uint32_t pid);

int cli_cmd_record(int argc, char **argv);
int cli_cmd_query(int argc, char **argv);
int cli_cmd_symbols(int argc, char **argv);
int cli_cmd_doctor(int argc, char **argv);
