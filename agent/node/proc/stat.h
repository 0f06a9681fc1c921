/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /proc/PID/stat (maps_line.c: pure). */
#pragma once

#include <stdint.h>

struct proc_stat {
	char comm[16];		     /* the command's name may contain anything */
	uint64_t flags, start_ticks; /* PF_*; in clock ticks since boot */
};
/* -EINVAL: no such text. */
int proc_stat_parse(const char *text, struct proc_stat *ret);
