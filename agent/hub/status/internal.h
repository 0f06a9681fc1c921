/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of status/ share: the sum of the entries of all nodes about one target. */
#pragma once

#include "hub/status/status.h"
#include "lib/reason/reason.h"
#include "lib/select/select.h"

#define STATUS_MAX_FAILURES 8
#define STATUS_MAX_EXAMPLES 3	/* nodes, and their texts, that a message about one reason shows */
#define STATUS_SHOWN_BYTES  800 /* limit for the nodes' texts in a message */

struct group { /* the nodes that give one reason; strings are borrowed */
	enum reason reason; /* NONE: this version does not know the reason */
	const char *name;   /* the reason's name in the nodes' reports */
	enum reason_weight weight;
	unsigned n_nodes, n_pods;
	const char *examples[STATUS_MAX_EXAMPLES];
	struct {
		const char *node, *text; /* a text, and the first node that gave it */
	} said[STATUS_MAX_EXAMPLES];
	unsigned n_said, n_unsaid; /* unsaid: nodes with other texts, which are not in said */
};
struct status_sum {
	/* n_current: how many entries are of agents that have the target's current generation */
	unsigned n_entries, n_current;
	/* borrowed: the first node that has another generation; NULL: none */
	const char *behind;
	unsigned n_refused, n_profiling, n_failed;
	unsigned pods_matched, pods, containers;
	/* stacks: samples; whole_stacks: how many of them have a complete user stack, estimated */
	uint64_t stacks, whole_stacks;
	/*
	 * how many events of the target are profiled; for how many of them a node has taken
	 * samples; for how many the hub has stored samples
	 */
	unsigned n_events, n_sampled, n_stored;
	/*
	 * owned: the names of the events that are profiled, as in "on-cpu,off-cpu"; of those that
	 * the agents leave out, as in "rdma, on-gpu", or ""
	 */
	char *events, *left_out;
	/*
	 * owned: the names of the events that are stored, and of those not sampled, as in
	 * "on-cpu, off-cpu"; or ""
	 */
	char *stored, *missing;
	/* owned; the reason of most nodes is first, REASON_REASONS_OMITTED last */
	struct group *groups;
	size_t n_groups;
};
/*
 * Adds up the entries. stopped: the target itself is suspended or completed, so a node without an
 * agent is no failure.
 */
void status_sum_entries(const json_t *target, const json_t *const *entries, size_t n, bool stopped,
		 struct status_sum *ret);
void status_sum_done(struct status_sum *s);
/*
 * Replaces bytes that are not ASCII, because a character that was cut in the middle is no valid
 * JSON.
 */
void status_text_ascii(char *text);
/*
 * The texts of the nodes in the group, each text once, at most max_bytes. The caller frees the
 * string.
 */
char *status_group_text(const struct group *g, size_t max_bytes);
/*
 * The names of the target's events as queries use them: "on-cpu,off-cpu". The caller frees the
 * string.
 */
char *status_target_events(const json_t *target);
/* Parts of the status. Each returns a new reference. */
json_t *status_summary(const struct status_sum *s);
json_t *status_failures(const struct status_sum *s);
/* NULL: no node has reported stacks yet */
json_t *status_stacks(const struct status_sum *s, const json_t *target);
