/* SPDX-License-Identifier: Apache-2.0 */
/* Private to doctor*.c: the list of checks, and the files that fill it. */
#pragma once

#include "node/files/files.h"
#include "node/proc/proc.h"

struct doctor {
	uint32_t pid; /* 0: the machine */
	bool as_json;
	json_t *checks; /* [{check, ok, detail, ...}] */
	unsigned n_bad;
	uint64_t hit_ns; /* cost of a hit of a uprobe here; 0: there are no uprobes */
};
/* Borrowed: a caller may add members for programs. */
json_t *cli_doctor_tell(struct doctor *d, const char *check, bool ok, const char *detail);

/* doctor_process.c */
void cli_doctor_process(struct doctor *d, struct files *files);

/* doctor_events.c: waiting and memory; go: it has goroutines */
void cli_doctor_events(struct doctor *d, struct files *files, const struct mappings *m, bool go);

/* doctor_machine.c */
void cli_doctor_machine(struct doctor *d, struct files *files);

/* doctor_file.c: its names and tables; index NULL: it could not be read, error says why. */
void cli_doctor_file(struct doctor *d, struct files *files, const struct mapping *m, int root_fd,
		 const struct elf_index *index, int error);
