/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to api/: calls in the Connect protocol over HTTP/1.1, one message each way
 * (connectrpc.com/docs/protocol). A call is a query on a worker. Its method gets the request as
 * JSON (pyroscope_read()), and writes the answer field by field.
 */
#pragma once

#include "hub/api/query_job.h"
#include "hub/pyroscope/pyroscope.h"

/* A row of the table of methods, pyroscope_methods.c. */
struct connect_job;
struct connect_method {
	const char *path; /* "/querier.v1.QuerierService/Series" */
	const struct pyroscope_message *request, *answer;
	/* Runs on a query worker. Returns 0, or -EINVAL after api_connect_fail(). */
	int (*make)(struct connect_job *j);
	bool choices; /* it takes little time: queue.h */
};
const struct connect_method *api_pyroscope_methods(size_t *ret_n);
const struct connect_method *api_pyroscope_method(const char *path); /* NULL: there is none */

struct connect_job {
	struct query_job q;
	const struct connect_method *method;
	json_t *request;
	struct buf out; /* the answer in protobuf; large parts may be added to it as they are */
	struct pyroscope_writer answer;
	struct query_names pods; /* tags of labels of pods and pushed profiles, if it needs them */
	bool has_pods;
	unsigned n_reads; /* of the store, for combinations of labels */
};

/* ---- errors ---- */

enum connect_code {
	CONNECT_UNKNOWN,
	CONNECT_INVALID_ARGUMENT,
	CONNECT_DEADLINE_EXCEEDED,
	CONNECT_NOT_FOUND,
	CONNECT_PERMISSION_DENIED,
	CONNECT_RESOURCE_EXHAUSTED,
	CONNECT_UNIMPLEMENTED,
	CONNECT_INTERNAL,
	CONNECT_UNAVAILABLE,
	CONNECT_UNAUTHENTICATED,
};
/* Makes an error the reply, and returns -EINVAL. */
int api_connect_fail(struct query_job *q, enum connect_code code, const char *fmt, ...)
	_printf_(3, 4);
/* The same for an error that a function of the store has returned. */
int api_connect_store_failed(struct query_job *q, int error, const struct field_error *e);

/* ---- what kinds of calls share ---- */

/* As names and done of struct query_kind; the job is a struct connect_job. */
bool api_connect_names(const struct call *c, struct query_names *ret);
void api_connect_done(struct query_job *q);
/*
 * pyroscope_render.c: the request of a GET, which is in its parameters, in the form of a call's.
 * -EINVAL: they are wrong.
 */
int api_render_request(const struct call *c, json_t **ret, struct field_error *reterr);

/* ---- what methods share ---- */

#define PYROSCOPE_MAX_TIME_S (1LL << 40) /* no profile has a later time, and sums do not overflow */

/*
 * Gives a selection what is left of the call's time. The store counts it from the start of each
 * read, so each read of a call needs it anew. -EINVAL: none is left, which is replied.
 */
int api_connect_limit(struct query_job *q, struct selection *s);
/*
 * The selection of a request with profile_typeID, label_selector, start and end. A type that no
 * event has selects nothing. -EINVAL: the request is wrong, which is replied. The caller frees
 * *ret.
 */
int api_pyroscope_select(struct connect_job *j, const json_t *request, struct selection **ret);
/*
 * The same for requests with matchers: one selection for each event of them.
 */
struct pyroscope_selections {
	struct selection *of[_EVENT_ALL]; /* by event; NULL: not of this one */
};
int api_pyroscope_select_all(struct connect_job *j, struct pyroscope_selections *ret);
void api_pyroscope_selections_done(struct pyroscope_selections *s);
/*
 * The label of a name, which must stay valid; one that no profile of the selection's time has has
 * no tags. -EINVAL: an error, which is replied.
 */
int api_pyroscope_label(struct connect_job *j, const char *name, const struct selection *sel,
			struct pyroscope_label *ret);
/* Forgets which labels pods have: the next selection has another time. */
void api_pyroscope_forget_pods(struct connect_job *j);

/*
 * The labels of a group_by, sorted by name, each once: at most PYROSCOPE_MAX_LABELS. -EINVAL: an
 * error, which is replied.
 */
#define PYROSCOPE_MAX_LABELS 32 /* of a combination */
int api_pyroscope_groups(struct connect_job *j, const json_t *groups, const struct selection *sel,
			 struct pyroscope_label *ret, size_t *ret_n);

/* A selection with one more condition, which are both borrowed. It must not be copied. */
struct pyroscope_narrowed {
	struct selection sel;
	struct predicate both, *children[2];
};
void api_pyroscope_narrow(struct pyroscope_narrowed *n, const struct selection *sel,
			  struct predicate *also);

/* ---- pyroscope_values.c: which values labels have ---- */

#define PYROSCOPE_MAX_VALUES 10000 /* of a label, or sets of them; more are an error */
/* Adds the events of which there are profiles. */
int api_pyroscope_events(struct connect_job *j, const struct selection *sel, unsigned *ret_mask);
/* Takes the selections out whose events have no profiles. */
int api_pyroscope_keep_events(struct connect_job *j, struct pyroscope_selections *s);
/* Whether there are values of each of the labels: ret has one for each. */
int api_pyroscope_has_values(struct connect_job *j, const struct selection *sel,
			     const struct pyroscope_label *labels, size_t n, bool *ret);
/* Counts one more read of the store for combinations. -EINVAL: there are too many. */
int api_pyroscope_count_read(struct connect_job *j);
/* Adds the values of a label. */
int api_pyroscope_values(struct connect_job *j, const struct selection *sel,
			 const struct pyroscope_label *label, struct query_names *ret);
/* The labels of a list that the store tells apart at once, because samples have no tags of them. */
struct pyroscope_joint {
	char *tag;			 /* NULL: there are none */
	size_t at[PYROSCOPE_MAX_LABELS]; /* their places in the list */
	size_t n;
};
void api_pyroscope_joint_init(struct pyroscope_joint *j, const struct pyroscope_label *labels,
			      size_t n);
void api_pyroscope_joint_done(struct pyroscope_joint *j);
/*
 * Puts the values that a value of the tag has at the places of their labels; the caller frees them.
 * Returns false if it is none of the tag's.
 */
bool api_pyroscope_joint_put(const struct pyroscope_joint *j, const char *value, char **values);
/*
 * Calls fn for each combination of values of the labels that profiles have, with the selection of
 * those; NULL: the label is not there. Labels without tags have the value NULL. An error of fn ends
 * it.
 */
typedef int pyroscope_combination_fn(const char *const *values, const struct selection *sel,
				     void *arg);
int api_pyroscope_combinations(struct connect_job *j, const struct selection *sel,
			       const struct pyroscope_label *labels, size_t n,
			       pyroscope_combination_fn *fn, void *arg);

/* ---- methods: pyroscope.c, pyroscope_labels.c, pyroscope_series.c ---- */
int api_pyroscope_profile_types(struct connect_job *j);
int api_pyroscope_label_names(struct connect_job *j);
int api_pyroscope_label_values(struct connect_job *j);
int api_pyroscope_series(struct connect_job *j);
int api_pyroscope_select_series(struct connect_job *j);
int api_pyroscope_profile_stats(struct connect_job *j);
/* pyroscope_stacks.c, pyroscope_profile.c, pyroscope_heatmap.c */
int api_pyroscope_select_merge_stacktraces(struct connect_job *j);
int api_pyroscope_select_merge_span_profile(struct connect_job *j);
int api_pyroscope_select_merge_profile(struct connect_job *j);
int api_pyroscope_diff(struct connect_job *j);
int api_pyroscope_select_heatmap(struct connect_job *j);
