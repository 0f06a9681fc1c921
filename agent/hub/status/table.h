/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's memory: a row per target, with the entry of each node about the target. */
#pragma once

#include "hub/status/internal.h"

#define uthash_fatal(msg) abort()
#include <uthash.h>

struct heard { /* the entry of one node about one target */
	char *node;
	json_t *entry; /* the entry, with "node" added */
	/*
	 * Since the target has the generation in the entry, the hub has seen a pod of the target on
	 * the node.
	 */
	bool seen_pod;
	UT_hash_handle hh;
};
struct status_row {
	char *uid;
	/*
	 * path of the target's status in the API; NULL: only reports name the target, and its
	 * object is unknown
	 */
	char *path;
	json_t *object;	 /* the object as the watch shows it; NULL if path is NULL */
	json_t *written; /* the status that was written last, until the watch shows it; else NULL */
	char *written_rv;
	struct heard *heard;
	bool dirty, pending, in_flight;
	bool doubted; /* in the last result: some entry did not count */
	bool omitted; /* in the last result: the target may be missing in a full report */
	uint64_t last_write_ns, retry_ns, backoff_ns;
	UT_hash_handle hh;
};

struct status_row *status_row_find(struct status_row *all, const char *uid);
struct status_row *status_row_find_or_add(struct status_row **all, const char *uid);
/* Moves the row behind all others. */
void status_row_move_last(struct status_row **all, struct status_row *t);
void status_row_forget_written(struct status_row *t);
void status_row_forget_object(struct status_row *t);
void status_row_free(struct status_row **all, struct status_row *t);
/* Frees the row if neither its object nor an entry is known and no write is under way. */
void status_row_drop_if_unused(struct status_row **all, struct status_row *t);
/*
 * Stores the entry of a node, an element of a report's status.targets. Returns true if it differs
 * from the entry before.
 */
bool status_row_hear(struct status_row *t, const char *node, const json_t *entry);
bool status_row_unhear(struct status_row *t, const char *node);
