/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reason: every reason that a condition, a failure or a node's report can give, in one table. Code
 * names a reason by its enum, so that a misspelt one does not compile. A reason is a string only
 * where it was received, because another version of the agent may have other reasons.
 * controller-spec/SPEC.md has the table (.ci/check-reasons). Pure; any thread.
 */
#pragma once

#include "lib/base/base.h"

enum reason {
	REASON_NONE, /* reason_by_name() returns it for a name that this version does not know */

	/* The agent refuses the target. */
	REASON_INVALID_SELECTOR,
	REASON_INVALID_SPEC,
	REASON_INVALID_OBJECT,
	REASON_TOO_MANY_TARGETS,
	REASON_NO_EVENT_ALLOWED,

	/* Nothing of the target is profiled on the node. */
	REASON_NODE_UNKNOWN,
	REASON_NODE_NOT_SELECTED,
	REASON_COMPLETED,
	REASON_SUSPENDED,
	REASON_NO_PODS_MATCHED,

	/*
	 * Some pods are not profiled: these reasons have a text about_pods. If a report has reasons
	 * with the same number of pods, it lists them in this order.
	 */
	REASON_NAMESPACE_DISABLED,
	REASON_NAMESPACE_NOT_OPTED_IN,
	REASON_POD_OPTED_OUT,
	REASON_AMBIGUOUS_STATIC_POD,
	REASON_TOO_MANY_PODS,
	REASON_NO_ROOM_FOR_PODS,
	REASON_NO_CONTAINERS_SELECTED,
	REASON_UNSUPPORTED_RUNTIME,
	REASON_CONTAINERS_NOT_RUNNING,
	REASON_TOO_MANY_CONTAINERS,

	/* The agent uses the target, but changes or ignores a part of it. */
	REASON_EVENT_NOT_ALLOWED,
	REASON_RATE_CAPPED,
	REASON_OVERHEAD_CAPPED,
	REASON_SAMPLE_BYTES_RAISED,
	REASON_UNKNOWN_FIELD,

	/* Something is missing on the node. */
	REASON_NODE_WITHOUT_AGENT,
	REASON_PROFILER_NOT_LOADED,
	REASON_EVENT_UNSUPPORTED,
	REASON_CLOCK_AHEAD,

	/* Something is missing from the profiles. */
	REASON_OVER_BUDGET,
	REASON_ESTIMATED,
	REASON_RATE_LOWERED,
	REASON_CGROUPS_NOT_SEEN,
	REASON_SHARE_EXCEEDED,
	REASON_MEMORY_NOT_SEEN,
	REASON_GPU_MEMORY_NOT_SEEN,
	REASON_ON_GPU_NOT_SEEN,
	REASON_RDMA_NOT_SEEN,
	REASON_PROCESS_UNREADABLE,
	REASON_UNWIND_TABLES_MISSING,
	REASON_RUNTIME_NOT_WALKED,
	REASON_JAVA_ATTACH_FAILED,
	REASON_SCRAPE_FAILED,
	REASON_SCRAPED_LESS,
	REASON_RUNTIME_NOT_NAMED,
	REASON_GOROUTINES_NOT_SEEN,

	/* The list of reasons is full. */
	REASON_REASONS_OMITTED,
	REASON_FAILURES_OMITTED,

	/* Only the hub's conditions have these. */
	REASON_VALID,
	REASON_PROFILING,
	REASON_IDLE,
	REASON_PENDING,
	REASON_WAITING_FOR_SAMPLES,
	REASON_WAITING_FOR_STORE,
	REASON_REPORT_FULL,
	REASON_NO_ROOM,
	REASON_NOT_STORED,
	REASON_NO_AGENTS,
	REASON_AS_EXPECTED,
	REASON_NOT_VERIFIED,
	REASON_NOT_STARTED,
	REASON_RUNNING,
	REASON_STOP_AFTER,
	_REASON_MAX,
};

/* How serious a reason is for the target about which a node reports it. */
enum reason_weight {
	WEIGHT_NONE,	/* no node reports it: only the hub uses it, in a condition or a status */
	WEIGHT_NOTE,	/* nothing is wrong: the message of Ready contains it */
	/*
	 * somebody's choice, or the state of the pods: it is reported, but the target is not
	 * Degraded
	 */
	WEIGHT_STATE,
	WEIGHT_MINOR,	/* the target works, but with less than it asked for: Degraded */
	WEIGHT_PROBLEM, /* the node sends no samples: Degraded */
	/* the node refuses the target: Degraded. If all nodes refuse it: not Accepted */
	WEIGHT_REFUSED,
};

/* Who can do something about a reason. */
enum reason_audience {
	AUDIENCE_NOBODY,
	AUDIENCE_TARGET_OWNER,
	AUDIENCE_POD_OWNER,
	AUDIENCE_ADMINISTRATOR, /* the administrator of the cluster and of podflame */
};

struct reason_info {
	const char *name;	/* the name in a condition: "NoPodsMatched" */
	/* the only condition that may have this reason: "Ready"; NULL: others may have it */
	const char *condition;
	enum reason_weight weight;
	enum reason_audience audience;
	const char *meaning;	/* sentences, in Markdown */
	const char *advice;	/* what the audience can do; NULL: nothing */
	/* the text in messages before "N pods (for example NS/NAME)"; NULL: it has none */
	const char *about_pods;
};

/* The name of REASON_NONE is "". */
const struct reason_info *reason_info(enum reason r);
const char *reason_name(enum reason r);
/* REASON_NONE: this version has no reason of that name, or the name is NULL or "". */
enum reason reason_by_name(const char *name);
/*
 * Returns a text such as "no selected container runs yet in 3 pods (for example app/web)". r must
 * have about_pods. The caller frees the text.
 */
char *reason_about_pods(enum reason r, unsigned n_pods, const char *example);
