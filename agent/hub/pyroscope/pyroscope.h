/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyroscope: what the words of Pyroscope's API mean here: its types of profiles are our events, its
 * labels our tags, its selectors our filters. No I/O. docs/grafana.md describes it for users.
 */
#pragma once

#include "hub/query/query.h"

/* ---- types: "process_cpu:cpu:nanoseconds:cpu:nanoseconds" is on-cpu ---- */

#define PYROSCOPE_TYPE_PARTS 5
struct pyroscope_type {
	char id[160];
	/* name, sample type, sample unit, period type, period unit; each may be "" */
	char parts[PYROSCOPE_TYPE_PARTS][48];
	int64_t factor; /* a value of the event in the type's unit: 1000 ns are a microsecond */
};
void pyroscope_type_of(enum event e, struct pyroscope_type *ret);
/*
 * -EINVAL: the text is no id, which has five parts, or six if the last one is "delta". -ENOENT: no
 * event has this type.
 */
int pyroscope_type_parse(const char *id, enum event *ret, struct field_error *reterr);

/* ---- labels: "service_name" is the tag pod_group, or else app_service ---- */

/*
 * Which tags have a label's value: the first one that a profile has. A label whose name begins with
 * "__" belongs to the type instead, and has no tags: pyroscope_private_value().
 */
struct pyroscope_label {
	const char *name;
	const char *tags[3]; /* NULL at the end */
	bool listed;	     /* false: it is known to selectors, but clients are not told of it */
};
const struct pyroscope_label *pyroscope_label_table(size_t *ret_n);
/*
 * Finds the label of a name. pods: the tags of the labels that pods and pushed profiles have
 * ("k8s.label.app", "label.region"), whose names are written with underscores here; NULL: none are
 * known. false: no label has this name. What *ret refers to stays valid as long as name and pods.
 */
bool pyroscope_label_find(const char *name, const struct query_names *pods,
			  struct pyroscope_label *ret);
/* Whether a text may name such a label with underscores, so that the tags of them are needed. */
bool pyroscope_names_kept_label(const char *text);
/* The name of such a tag with underscores: "k8s_label_app". The caller frees it. */
char *pyroscope_kept_label(const char *tag);
bool pyroscope_is_private(const char *name);
/* The value of a private label; "": the type does not have it. */
const char *pyroscope_private_value(const char *name, const struct pyroscope_type *t);
/* The private labels that each type has; NULL at the end. */
extern const char *const pyroscope_private_names[];

/* ---- selectors: {namespace="shop",pod=~"web-.*"} ---- */

struct pyroscope_matchers {
	struct predicate *where; /* what profiles must be like; NULL: anything */
	unsigned event_mask;	 /* 1 << enum event: of these types */
};
/*
 * Parses selectors of Prometheus, all of which must match. A type's id may stand where Prometheus
 * has the name of a metric. A regular expression is one of PCRE2, and matches whole values; a label
 * that is not there matches as "". Limits are those of query_filter_parse().
 */
int pyroscope_matchers_parse(const char *const *selectors, size_t n, const struct query_names *pods,
			     struct pyroscope_matchers *ret, struct field_error *reterr);
void pyroscope_matchers_done(struct pyroscope_matchers *m);

/* Both must hold. Each may be NULL: anything. Takes ownership. */
struct predicate *pyroscope_and(struct predicate *a, struct predicate *b);
/* One must hold. NULL if one of them is: anything. Takes ownership. */
struct predicate *pyroscope_or(struct predicate *a, struct predicate *b);
/* The label has the value; NULL: it is not there. Labels without tags do not count. */
struct predicate *pyroscope_label_is(const struct pyroscope_label *l, const char *value);
/* The tag has one of the values. */
struct predicate *pyroscope_tag_in(const char *tag, const char *const *values, size_t n);
