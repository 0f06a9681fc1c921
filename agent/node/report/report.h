/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: this node's ProfilingNodeReport: built from the plan and what happened,
 * written on change only, coalesced and jittered; first transitions at once.
 */
#pragma once

#include "lib/kube/kube.h"
#include "lib/reason/reason.h"
#include "node/probe/probe.h"

struct report_config {			/* strings are copied */
	const char *node_name, *ns, *version, *boot_id;
	const char *pod_name;		/* the agent's: its DaemonSet owns the report; may be NULL */
	const char *config_hash;	/* of the agent's settings; may be NULL */
	uint64_t unwind_table_bytes;
	uint64_t min_interval_ns, jitter_ns;	/* 0: 60 s, 10 s */
};
struct report;
int report_new(struct loop *l, struct kube *k, const struct report_config *c, struct report **ret);
struct report *report_free(struct report *r);
/*
 * Inputs; each marks the report dirty only when its content changes. Targets that
 * match no pod here and have no error are not in the report, so that a target
 * costs nothing on the nodes that it does not concern; sampled, stored and
 * problem are ignored for them. A new generation of a target starts with nothing
 * sampled and nothing stored.
 */
void report_plan(struct report *r, const struct plan *p);
/* Features; one with the name of an event that is not ok: targets that ask for the event are told (EventUnsupported). */
void report_support(struct report *r, const struct support *s, size_t n, const char *cgroup_mode);
void report_sampled(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);	/* kernel delivered */
void report_stored(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);	/* hub has it */
/* Of n samples with a user stack, n_finished have a whole one. Told when the share has moved by a point. */
void report_stacks(struct report *r, const char *target_uid, uint64_t n, uint64_t n_finished);
/* A problem of one target here, of n_pods (0: not known); message "" or NULL removes it. */
void report_problem(struct report *r, const char *target_uid, enum reason reason,
		    const char *message, unsigned n_pods);
/* Asks whether the server still has it, unless a write is about to find out; if not it is written again. */
void report_check(struct report *r);
/* The JSON that would be written now (tests, /debug/report); new reference. */
json_t *report_json(const struct report *r);
