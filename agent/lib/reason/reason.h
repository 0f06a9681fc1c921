/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reason: every reason that a condition, a failure or a node's report can give, in one table.
 * Code names a reason by its enum, so that a misspelt one does not compile. Only what comes over
 * the wire is a string, because another version of the agent may know other reasons.
 * controller-spec/SPEC.md prints the table (.ci/check-reasons). Pure; any thread.
 */
#pragma once

#include "lib/base/base.h"

enum reason {
	REASON_NONE, /* of a name: this version does not know it */

	/* The agent does not take the target. */
	REASON_INVALID_SELECTOR,
	REASON_INVALID_SPEC,
	REASON_INVALID_OBJECT,
	REASON_TOO_MANY_TARGETS,

	/* Nothing of the target is profiled on the node. */
	REASON_NODE_UNKNOWN,
	REASON_NODE_NOT_SELECTED,
	REASON_COMPLETED,
	REASON_SUSPENDED,
	REASON_NO_PODS_MATCHED,

	/* Some pods are not profiled: these have a text about_pods. A report lists reasons of
	 * equally many pods in this order. */
	REASON_NAMESPACE_DISABLED,
	REASON_NAMESPACE_NOT_OPTED_IN,
	REASON_POD_OPTED_OUT,
	REASON_AMBIGUOUS_STATIC_POD,
	REASON_TOO_MANY_PODS,
	REASON_NO_CONTAINERS_SELECTED,
	REASON_UNSUPPORTED_RUNTIME,
	REASON_CONTAINERS_NOT_RUNNING,
	REASON_TOO_MANY_CONTAINERS,

	/* The target is not taken as it is written. */
	REASON_RATE_CAPPED,
	REASON_UNKNOWN_FIELD,

	/* Something is missing on the node. */
	REASON_NODE_WITHOUT_AGENT,
	REASON_PROFILER_NOT_LOADED,
	REASON_EVENT_UNSUPPORTED,

	/* Something is missing from the profiles. */
	REASON_OVER_BUDGET,
	REASON_ESTIMATED,
	REASON_RATE_LOWERED,
	REASON_MEMORY_NOT_SEEN,
	REASON_PROCESS_UNREADABLE,
	REASON_UNWIND_TABLES_MISSING,
	REASON_RUNTIME_NOT_WALKED,
	REASON_JAVA_ATTACH_FAILED,
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
	REASON_NOT_STORED,
	REASON_NO_AGENTS,
	REASON_AS_EXPECTED,
	REASON_NOT_STARTED,
	REASON_RUNNING,
	REASON_STOP_AFTER,
	_REASON_MAX,
};

/* How much a reason matters to the target that a node reports it of. */
enum reason_weight {
	WEIGHT_NONE,	/* no node reports it: the hub's own, of a condition or of a status */
	WEIGHT_NOTE,	/* nothing is wrong: it stands in the message of Ready */
	WEIGHT_STATE,	/* a choice, or the state of the pods: reported, nothing is degraded */
	WEIGHT_MINOR,	/* the target works, but less well than asked for: Degraded */
	WEIGHT_PROBLEM, /* there are no samples from the node: Degraded */
	/* the node does not take the target: Degraded; if no node does: not Accepted */
	WEIGHT_REFUSED,
};

/* Whom a reason concerns: the person that can change something about it. */
enum reason_audience {
	AUDIENCE_NOBODY,
	AUDIENCE_TARGET_OWNER,
	AUDIENCE_POD_OWNER,
	AUDIENCE_ADMINISTRATOR, /* of the cluster, and of podflame in it */
};

struct reason_info {
	const char *name;	/* as in a condition: "NoPodsMatched" */
	const char *condition;	/* the only one that has this reason: "Ready"; else NULL */
	enum reason_weight weight;
	enum reason_audience audience;
	const char *meaning;	/* sentences, Markdown */
	const char *advice;	/* what the audience can do; NULL: nothing */
	const char *about_pods; /* of messages, before "N pods (for example NS/NAME)"; else NULL */
};

/* Of REASON_NONE the name is "". */
const struct reason_info *reason_info(enum reason r);
const char *reason_name(enum reason r);
/* REASON_NONE: this version knows no reason of that name. NULL and "" name none. */
enum reason reason_by_name(const char *name);
/* "no selected container runs yet in 3 pods (for example app/web)". r has about_pods; the caller
 * frees the text. */
char *reason_about_pods(enum reason r, unsigned n_pods, const char *example);
