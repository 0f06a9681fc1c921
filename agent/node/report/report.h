/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: this node's ProfilingNodeReport. It is made from the plan and from what happened, and
 * written only when it changes. Changes that a user waits for are written at once, others are
 * coalesced and spread over time. Loop thread. If a write fails, the report tries again later.
 */
#pragma once

#include "lib/kube/kube.h"
#include "lib/reason/reason.h"
#include "node/probe/probe.h"

struct report_config {			/* strings are copied */
	const char *node_name, *ns, *version, *boot_id;
	const char *pod_name; /* of the agent's pod, whose DaemonSet owns the report; may be NULL */
	const char *config_hash;	/* hash of the agent's settings; may be NULL */
	uint64_t unwind_table_bytes;
	uint64_t min_interval_ns, jitter_ns;	/* 0: 60 s, 10 s */
};
struct report;
int report_new(struct loop *l, struct kube *k, const struct report_config *c, struct report **ret);
struct report *report_free(struct report *r);
/*
 * Inputs. The report is written only if its content changes. Targets that match no pod here and
 * have no error are not in the report, so that a target costs nothing on nodes that it does not
 * concern. For them, sampled, stored and problem are ignored. A new generation of a target starts
 * with nothing sampled and nothing stored.
 */
void report_plan(struct report *r, const struct plan *p);
/*
 * Features. If a feature has the name of an event and is not ok, targets that ask for the event get
 * EventUnsupported.
 */
void report_support(struct report *r, const struct support *s, size_t n, const char *cgroup_mode);
/* The kernel has delivered samples. */
void report_sampled(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);
/* The hub has stored samples. */
void report_stored(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);
/*
 * Of n samples with a user stack, n_finished have a complete one. The share is reported when it has
 * changed by a percentage point.
 */
void report_stacks(struct report *r, const char *target_uid, uint64_t n, uint64_t n_finished);
/*
 * Sets a problem of one target on this node, which concerns n_pods pods (0: not known). Message ""
 * or NULL removes it.
 */
void report_problem(struct report *r, const char *target_uid, enum reason reason,
		    const char *message, unsigned n_pods);
/* What was lost since the agent's start. This alone causes no write. */
void report_lost(struct report *r, uint64_t n_samples, uint64_t n_profiles);
/*
 * Asks the server whether it still has the report, unless a write is about to show that. If not, it
 * is written again.
 */
void report_check(struct report *r);
/* The JSON that would be written now (for tests and /debug/report). Returns a new reference. */
json_t *report_json(const struct report *r);
