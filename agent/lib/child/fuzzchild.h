/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a *_fuzz.c that simulates children: the functions of struct child_ops that need no child.
 * Time passes only while the owner waits.
 */
#pragma once

#include "lib/child/child.h"

#include <poll.h>

static uint64_t fuzzchild_ns; /* what the owner takes for the time */

static inline uint64_t fuzzchild_now_ns(void)
{
	return fuzzchild_ns;
}

static inline void fuzzchild_sleep(uint64_t ns)
{
	fuzzchild_ns += ns;
}

static inline bool fuzzchild_reap(pid_t pid, uint64_t ns)
{
	(void)pid;
	(void)ns;
	return true;
}

/* If there is no message, the whole wait passes. */
static inline bool fuzzchild_readable(int sock, uint64_t ns)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};
	bool is_readable = poll(&p, 1, 0) > 0;

	if (!is_readable)
		fuzzchild_sleep(ns);
	return is_readable;
}
