/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of status/ share: the sum of all nodes' entries about one target. */
#pragma once

#include "hub/status/status.h"
#include "lib/reason/reason.h"

#define STATUS_MAX_FAILURES 8
#define STATUS_MAX_EXAMPLES 3
#define STATUS_SHOWN_BYTES  800		   /* of what nodes say, in a message */

struct group { /* nodes with one reason; strings are borrowed */
	enum reason reason; /* NONE: one that this version does not know */
	const char *name;   /* of the reason, as the nodes give it */
	enum reason_weight weight;
	unsigned n_nodes, n_pods;
	const char *examples[STATUS_MAX_EXAMPLES];
	struct {
		const char *node, *text; /* the first node that says so */
	} said[STATUS_MAX_EXAMPLES];
	unsigned n_said, n_unsaid; /* unsaid: nodes that say something else */
};
struct status_sum {
	unsigned n_entries, n_current; /* current: of an agent that has the target's generation */
	const char *behind;	       /* borrowed: the first node with another one; NULL: none */
	unsigned n_refused, n_profiling, n_failed;
	unsigned pods_matched, pods, containers;
	uint64_t stacks, whole_stacks; /* samples; those with a whole user stack, estimated */
	unsigned n_events, n_sampled, n_stored; /* events of the target, each somewhere */
	char *stored,
		*missing; /* owned: which are stored, which not sampled: "on-cpu, off-cpu"; "" */
	struct group *groups; /* owned; most nodes first */
	size_t n_groups;
};
/* stopped: by the target itself, so that no agent is missed. */
void status_sum_entries(const json_t *target, const json_t *const *entries, size_t n, bool stopped,
		 struct status_sum *ret);
void status_sum_done(struct status_sum *s);
/* A cut character would be no JSON. */
void status_text_ascii(char *text);
/* What its nodes say, each text once, at most max_bytes. Caller frees. */
char *status_group_text(const struct group *g, size_t max_bytes);
/* "on-cpu,off-cpu": the target's events as queries name them. Caller frees. */
char *status_target_events(const json_t *target);
/* Of a status. New references. */
json_t *status_summary(const struct status_sum *s);
json_t *status_failures(const struct status_sum *s);
/* NULL: no node has reported any yet */
json_t *status_stacks(const struct status_sum *s, const json_t *target);
