/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of plan/ share and that other modules do not use: the decoded target
 * and pod, the table of spec fields, selectors and tags. Decoded values borrow their strings from
 * the JSON. Pure: any thread.
 */
#pragma once

#include "lib/select/select.h"
#include "node/plan/plan.h"

#define PLAN_MAX_TARGETS    4096
#define PLAN_MAX_CONTAINERS 256	 /* of one pod */
#define PLAN_MAX_GPU_NAMES  8	 /* of one pod */

/* ---- fields.c: the spec's fields, equal to crds/ (crd_test.c compares them) ---- */
enum field_type {
	FIELD_OBJECT,
	FIELD_MAP,
	FIELD_ARRAY,
	FIELD_STRING,
	FIELD_INT,
	FIELD_NUMBER,
	FIELD_BOOL
};
enum field_format {
	FORMAT_NONE,
	FORMAT_LABEL_KEY,
	FORMAT_LABEL_VALUE,
	FORMAT_DNS_LABEL,
	FORMAT_DURATION,
	FORMAT_SHORT_DURATION
};
struct field {
	const char *path; /* path below spec: "containers.include[]", "podSelector.matchLabels{}" */
	enum field_type type;
	bool required; /* an object that may have this field must have it */
	/*
	 * limits of a number, of the length of a string, or of the number of members; max 0: no
	 * limit
	 */
	double min, max;
	bool min_exclusive;
	enum field_format format;
	const char *choices; /* the only allowed values of a string: "In|NotIn" */
	const char *def;     /* default as JSON; NULL: there is none */
	bool cluster_only;
};
const struct field *plan_fields(size_t *ret_n);
const struct field *plan_field(const char *path);
const char *plan_format_pattern(enum field_format f); /* the pattern as in crds/ */
bool plan_format_ok(enum field_format f, const char *s);
/*
 * Checks spec. Calls `unknown` for each member that is not in the table. Returns -EINVAL at the
 * first wrong member.
 */
typedef void plan_unknown_fn(const char *path, void *arg);
int plan_fields_check(const json_t *spec, bool cluster, plan_unknown_fn *unknown, void *arg,
		      struct field_error *reterr);

/* ---- settings.c: settings of events other than on-cpu ---- */
/*
 * Reads the settings of the events in mask. The caller has checked `events` with
 * plan_fields_check(). This function checks the rules of the schema that the table cannot express.
 */
int plan_settings_read(const json_t *events, unsigned mask, struct event_settings *ret,
		       struct field_error *reterr);
/*
 * Joins b's settings of `events` into a, which has settings of the events in `have`. If a and b
 * both have a setting, a gets one of the two values. finest true: the finer one, so each target
 * gets at least what it asks for. finest false: the coarser one, so no target gets more than it
 * asks for.
 */
void plan_settings_join(struct event_settings *a, unsigned have, const struct event_settings *b,
			unsigned events, bool finest);
json_t *plan_settings_json(const struct event_settings *s, unsigned mask);

/* ---- target.c ---- */
struct scrape_wish {	   /* spec.scrape */
	unsigned profiles; /* as in struct plan_scrape; 0: the target does not ask for any */
	uint16_t port;	   /* 0: that of the pod's annotation only */
	uint64_t interval_ns;
};
enum target_kind { TARGET_NAMESPACED, TARGET_CLUSTER, TARGET_BUILTIN };
enum container_type {
	CONTAINER_REGULAR,
	CONTAINER_INIT,
	CONTAINER_SIDECAR,
	CONTAINER_EPHEMERAL,
	_CONTAINER_TYPE_MAX
};
struct target {
	enum target_kind kind;
	const char *uid, *ns, *name;
	int64_t generation;
	/* owned, if ok; namespaces NULL: only ns; nodes NULL: the target selects every node */
	struct selector *pods, *namespaces, *nodes;
	const json_t *include, *exclude, *label_tags;
	unsigned type_mask;
	unsigned event_mask, sample_hz;
	struct event_settings settings;
	bool suspend, java_attach, trace_context;
	struct scrape_wish scrape;
	double overhead_percent, on_cpu_percent; /* as in struct plan_container */
	/* stop_after_ns 0: the target has no stopAfter; first_ready_ns 0: it was not ready yet */
	uint64_t stop_after_ns, first_ready_ns;
	uint64_t created_ns; /* wall time; 0: not known */
	bool ok;
	/* why the target is refused, if !ok. NONE: for an error in the object */
	enum reason refusal;
	struct field_error *error; /* owned; the error in the object; NULL: there is none */
	/* owned: names of fields that this version does not know; NULL: there are none */
	char *ignored;
	/*
	 * not 0: the target is refused because there are more than PLAN_MAX_TARGETS targets; the
	 * value is their number
	 */
	size_t over_limit;
};
void plan_target_decode(const json_t *obj, struct target *ret);
void plan_target_done(struct target *t);
void plan_target_builtin(const struct plan_settings *s, struct target *ret);
bool plan_target_wants_container(const struct target *t, const char *name,
				 enum container_type type);

/* ---- tenant_limits.c ---- */
/*
 * Lowers what the target asks for to what the installation allows. If none of its events is
 * allowed, refuses the target.
 */
void plan_target_limit(const struct plan_settings *s, struct target *t);
/* Refuses ProfilingTargets of a namespace with more than max. The oldest ones stay. 0: no limit */
void plan_targets_refuse_of_namespace(struct target *const *targets, size_t n, unsigned max);

/* ---- too_many_targets.c ---- */
/* If there are more than PLAN_MAX_TARGETS targets, refuses the ones beyond this limit. */
void plan_targets_refuse_too_many(struct target *const *targets, size_t n);

/* ---- scrape.c: spec.scrape, and the pod's annotation ---- */
#define PLAN_SCRAPE_ANNOTATION "podflame.io/scrape"
/* The event that shows what the profile shows: who may not have the one must not get the other. */
enum event plan_profile_event(enum plan_profile p);
unsigned plan_profiles_of_events(unsigned event_mask); /* returns a mask: 1 << enum plan_profile */
/* Reads spec.scrape. The caller has checked spec with plan_fields_check(). */
int plan_scrape_read(const json_t *spec, struct scrape_wish *ret, struct field_error *reterr);
struct pod_scrape {	     /* what the pod says; all is borrowed */
	const char *address; /* NULL: it has none yet */
	uint16_t port;	     /* of the annotation; 0: it names none */
	bool annotated, off;
	const char *refused; /* as in struct plan_scrape */
};
void plan_scrape_pod_decode(const json_t *obj, struct pod_scrape *ret);
/* Adds what the target wants of the pod. *s NULL: no target before it wants anything. */
void plan_scrape_add(struct plan_scrape **s, const struct target *t, const struct pod_scrape *pod);
struct plan_scrape *plan_scrape_free(struct plan_scrape *s);
json_t *plan_scrape_json(const struct plan_scrape *s); /* NULL: null */

/* ---- pod.c ---- */
struct container_view {
	/* id: without a prefix like "containerd://"; NULL: the container has not started */
	const char *name, *image, *id;
	const char *waiting; /* why the container waits; NULL: it does not wait */
	enum container_type type;
	bool ended, bad_id;
};
struct pod_view {
	const json_t *labels, *annotations;
	const char *uid, *cgroup_uid, *ns, *name;
	const char *created; /* as the API server writes it, so texts compare as times; "" */
	bool is_static, containers_cut;
	struct pod_scrape scrape;
	struct container_view *containers; /* owned */
	size_t n_containers;
	struct tags tags; /* owned: tags that all containers of the pod have */
};
/*
 * Returns 1 if the pod is part of the plan, 0 if it has ended or is on another node, and -EINVAL if
 * it cannot be read.
 */
int plan_pod_decode(const json_t *obj, const struct plan_settings *s, struct pod_view *ret);
void plan_pod_done(struct pod_view *p);

/* ---- tags.c ---- */
void plan_tags_set(struct tags *t, const char *key,
		   const char *value); /* copies key and value; does nothing for NULL or "" */
void plan_tags_copy(const struct tags *from, struct tags *to);
void plan_tags_done(struct tags *t);
