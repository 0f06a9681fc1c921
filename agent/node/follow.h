/* SPDX-License-Identifier: Apache-2.0 */
/* What follow.c and parse_queue.c share. */
#pragma once

#include "node/internal.h"

struct process_id {
	uint64_t start_boottime_ns, tgid;
};
/*
 * Files that a worker has yet to look at, one of each, fairly: small ones first, and a cgroup
 * whose files have cost much time waits for the others. Loop thread.
 */
struct parse_queue;
typedef void parsed_fn(struct process_id who, void *arg); /* a file that it waited for is known */
struct parse_queue *parse_queue_new(struct node *n, struct worker *w, bool debug, parsed_fn *fn,
				    void *arg);
struct parse_queue *parse_queue_free(struct parse_queue *q);
/* Mapping k of m; who is told, once (NULL: nobody). false: too many wait already. */
bool parse_queue_add(struct parse_queue *q, struct mappings *m, size_t k, uint64_t cgroup_id,
		     const struct process_id *who);
void parse_queue_start(struct parse_queue *q); /* after parse_queue_add */
/* Something is under way or waits. */
bool parse_queue_works(const struct parse_queue *q);
void parse_queue_tick(struct parse_queue *q);
/* What runs is the last: the worker is about to end. */
void parse_queue_stop(struct parse_queue *q);
