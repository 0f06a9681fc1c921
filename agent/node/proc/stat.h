/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the text of /proc/PID/stat (maps_line.c). Pure. */
#pragma once

#include <stdint.h>

struct proc_stat {
	char comm[16];		     /* the process's name; it may contain any character */
	char state;		     /* of the first thread; 'Z': it has ended */
	uint64_t flags, start_ticks; /* flags: PF_*; start_ticks: clock ticks since boot */
};
/* -EINVAL: the text has another form. */
int proc_stat_parse(const char *text, struct proc_stat *ret);
