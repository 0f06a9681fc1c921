/* SPDX-License-Identifier: Apache-2.0 */
/* Private to doctor*.c: the list of checks, and the functions that add checks to it. */
#pragma once

#include "node/files/files.h"
#include "node/proc/proc.h"

struct doctor {
	uint32_t pid; /* the process to check; 0: only the machine */
	bool as_json;
	json_t *checks; /* the results: [{check, ok, detail, ...}] */
	unsigned n_bad;
	uint64_t hit_ns; /* time of one hit of a uprobe on this machine; 0: uprobes do not work */
};
/*
 * Adds the result of a check to d->checks. The returned object is borrowed; the caller may add
 * members to it, for programs that read the JSON.
 */
json_t *cli_doctor_tell(struct doctor *d, const char *check, bool ok, const char *detail);

/* doctor_process.c: checks of the process */
void cli_doctor_process(struct doctor *d, struct files *files);

/* doctor_events.c: checks of the events besides on-cpu. go: the process has goroutines. */
void cli_doctor_events(struct doctor *d, struct files *files, const struct mappings *m, bool go);

/* doctor_machine.c: checks of the machine */
void cli_doctor_machine(struct doctor *d, struct files *files);

/*
 * doctor_file.c: names and unwind tables of a mapped file. index NULL: the file could not be read,
 * and error has the reason.
 */
void cli_doctor_file(struct doctor *d, struct files *files, const struct mapping *m, int root_fd,
		 const struct elf_index *index, int error);
