/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report: this node's ProfilingNodeReport. It contains the plan and what has happened since the
 * plan was made, and is written only when its content changes. Changes for which a user waits are
 * written at once. Other changes are collected and written at random times, so that not all nodes
 * write together. If a write fails, it is repeated later. Loop thread.
 */
#pragma once

#include "lib/kube/kube.h"
#include "lib/reason/reason.h"
#include "node/probe/probe.h"

struct report_config {			/* strings are copied */
	const char *node_name, *ns, *version, *boot_id;
	/* name of the agent's pod; the DaemonSet of the pod owns the report; may be NULL */
	const char *pod_name;
	const char *config_hash;	/* hash of the agent's settings; may be NULL */
	uint64_t unwind_table_bytes;
	uint64_t min_interval_ns, jitter_ns;	/* 0: 60 s and 10 s */
};
struct report;
int report_new(struct loop *l, struct kube *k, const struct report_config *c, struct report **ret);
struct report *report_free(struct report *r);
/*
 * Inputs. The report is written only if its content changes. A target that matches no pod here, has
 * no error and misses no pod is not in the report, so it costs nothing on nodes that it does not
 * concern. For such a target, sampled, stored and problem are ignored. When the generation of a
 * target changes, its events count as not sampled and not stored again.
 */
void report_plan(struct report *r, const struct plan *p);
/*
 * Sets the namespaces of which the agent leaves out targets, because they have no room: the keys of
 * an object, which this function takes. "": targets of the cluster.
 */
void report_crowded(struct report *r, json_t *namespaces);
/*
 * Sets which features this node has. A feature may have the name of an event. If such a feature is
 * not ok, targets that ask for the event get the reason EventUnsupported.
 */
void report_support(struct report *r, const struct support *s, size_t n, const char *cgroup_mode);
/* To be called when the kernel has delivered samples. */
void report_sampled(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);
/* To be called when the hub has stored samples. */
void report_stored(struct report *r, const char *target_uid, enum event e, uint64_t n_samples);
/*
 * To be called for n more samples with a user stack, of which n_finished have a complete stack. The
 * share of complete stacks is reported again when it has changed by a percentage point.
 */
void report_stacks(struct report *r, const char *target_uid, uint64_t n, uint64_t n_finished);
/*
 * Sets a problem of one target on this node. It concerns n_pods pods (0: not known). Message "" or
 * NULL removes the problem.
 */
void report_problem(struct report *r, const char *target_uid, enum reason reason,
		    const char *message, unsigned n_pods);
/* Sets how much was lost since the agent's start. This alone causes no write. */
void report_lost(struct report *r, uint64_t n_samples, uint64_t n_profiles);
/*
 * Asks the API server whether the report still exists, unless a write that is due will show that.
 * If the report was deleted, writes it again.
 */
void report_check(struct report *r);
/*
 * Returns the JSON that would be written now (for tests and /debug/report). The caller gets a new
 * reference.
 */
json_t *report_json(const struct report *r);
