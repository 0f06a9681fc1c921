/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's memory: a row for each target, with the entry of each node about it. */
#pragma once

#include "hub/status/internal.h"

#define uthash_fatal(msg) abort()
#include <uthash.h>

struct heard { /* the entry of one node about one target */
	char *node;
	json_t *entry; /* with "node" */
	UT_hash_handle hh;
};
struct status_row {
	char *uid;
	char *path;	 /* of its status; NULL: only reports name it, the object is unknown */
	json_t *object;	 /* as watched; NULL like path */
	json_t *written; /* status of the last write, until the watch shows it */
	char *written_rv;
	struct heard *heard;
	bool dirty, pending, in_flight;
	bool omitted; /* the last result: the target may be missing in a full report */
	uint64_t last_write_ns, retry_ns, backoff_ns;
	UT_hash_handle hh;
};

struct status_row *status_row_find(struct status_row *all, const char *uid);
struct status_row *status_row_find_or_add(struct status_row **all, const char *uid);
/* Behind all others. */
void status_row_move_last(struct status_row **all, struct status_row *t);
void status_row_forget_written(struct status_row *t);
void status_row_forget_object(struct status_row *t);
void status_row_free(struct status_row **all, struct status_row *t);
/* Frees it if nothing is known and nothing is under way. */
void status_row_drop_if_unused(struct status_row **all, struct status_row *t);
/* entry: an element of a report's status.targets. true if it says something new. */
bool status_row_hear(struct status_row *t, const char *node, const json_t *entry);
bool status_row_unhear(struct status_row *t, const char *node);
