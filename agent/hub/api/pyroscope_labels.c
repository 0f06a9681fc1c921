/* SPDX-License-Identifier: Apache-2.0 */
/* Which types and labels there are, and which values labels have. */
#include "hub/api/connect.h"

#include <ctype.h>
#include <stdlib.h>

#define HOUR_S 3600

/* ---- ProfileTypes ---- */

static void put_type(struct pyroscope_writer *w, enum event e)
{
	static const char *const fields[PYROSCOPE_TYPE_PARTS] = {
		"name", "sample_type", "sample_unit", "period_type", "period_unit"};
	struct pyroscope_type t;

	pyroscope_type_of(e, &t);
	pyroscope_put_begin(w, "profile_types");
	pyroscope_put_text(w, "ID", t.id);
	for (size_t i = 0; i < PYROSCOPE_TYPE_PARTS; i++)
		pyroscope_put_text(w, fields[i], t.parts[i]);
	pyroscope_put_end(w);
}

int api_pyroscope_profile_types(struct connect_job *j)
{
	struct selection sel = {0};
	int64_t start = json_int_at(j->request, "start", 0),
		end = json_int_at(j->request, "end", 0);
	unsigned mask;
	int r = api_connect_limit(&j->q, &sel);

	/* old versions of Grafana ask without times */
	sel.time_end_s = end ? end / 1000 : (int64_t)(now_wall_ns() / NSEC_PER_SEC);
	sel.time_start_s = start ? start / 1000 : sel.time_end_s - HOUR_S;
	if (!r && (start < 0 || end < 0 || end / 1000 > PYROSCOPE_MAX_TIME_S ||
		   sel.time_end_s < sel.time_start_s))
		r = api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
				     "start and end: expected Unix milliseconds, the end last");
	if (!r)
		r = api_pyroscope_events(j, &sel, &mask);
	for (enum event e = 0; !r && e < _EVENT_ALL; e++)
		if (mask & 1u << e)
			put_type(&j->answer, e);
	return r;
}

static void put_names(struct connect_job *j, struct query_names *names)
{
	query_names_sort(names);
	for (size_t i = 0; i < names->n; i++)
		pyroscope_put_text(&j->answer, "names", names->names[i]);
	query_names_done(names);
}

/* ---- LabelNames ---- */

/* Adds the labels of pods or of pushed profiles. Clients that take words only get words. */
static int add_kept_labels(struct connect_job *j, const struct selection *sel, const char *prefix,
			   struct query_names *ret)
{
	const struct pyroscope_label kept = {.tags = {prefix}};
	struct query_names names = {0};
	int r = api_pyroscope_values(j, sel, &kept, &names);

	for (size_t i = 0; i < names.n; i++) {
		_cleanup_free_ char *tag = xasprintf("%s%s", prefix, names.names[i]);
		_cleanup_free_ char *word = pyroscope_kept_label(tag);

		query_names_add(ret, j->q.call->connect.any_names ? tag : word);
	}
	query_names_done(&names);
	return r;
}

/* Adds the names of labels that some profile of the selection has. */
static int add_label_names(struct connect_job *j, const struct selection *sel,
			   struct query_names *ret)
{
	size_t n;
	const struct pyroscope_label *table = pyroscope_label_table(&n);
	bool *has = xcalloc(n, sizeof(*has));
	int r;

	while (n && !table[n - 1].listed) /* they are the last ones */
		n--;
	r = api_pyroscope_has_values(j, sel, table, n, has);
	for (size_t i = 0; !r && i < n; i++)
		if (has[i])
			query_names_add(ret, table[i].name);
	free(has);
	if (!r)
		r = add_kept_labels(j, sel, POD_LABEL, ret);
	return r ? r : add_kept_labels(j, sel, PUSHED_LABEL, ret);
}

int api_pyroscope_label_names(struct connect_job *j)
{
	struct pyroscope_selections s;
	struct query_names names = {0};
	int r = api_pyroscope_select_all(j, &s);

	if (r)
		return r;
	r = api_pyroscope_keep_events(j, &s);
	for (enum event e = 0; !r && e < _EVENT_ALL; e++)
		if (s.of[e])
			r = add_label_names(j, s.of[e], &names);
	for (size_t i = 0; names.n && pyroscope_private_names[i]; i++)
		query_names_add(&names, pyroscope_private_names[i]);
	put_names(j, &names);
	api_pyroscope_selections_done(&s);
	return r;
}

/* ---- LabelValues ---- */

static int add_values(struct connect_job *j, const struct selection *sel, const char *name,
		      struct query_names *ret)
{
	struct pyroscope_label label;
	struct pyroscope_type t;
	int r;

	if (pyroscope_is_private(name)) {
		pyroscope_type_of(sel->event, &t);
		if (*pyroscope_private_value(name, &t))
			query_names_add(ret, pyroscope_private_value(name, &t));
		return 0;
	}
	r = api_pyroscope_label(j, name, sel, &label);
	return r ? r : api_pyroscope_values(j, sel, &label, ret);
}

int api_pyroscope_label_values(struct connect_job *j)
{
	const char *name = json_str_at(j->request, "name", "");
	struct pyroscope_selections s;
	struct query_names values = {0};
	int r;

	if (!*name)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"name: expected the name of a label");
	r = api_pyroscope_select_all(j, &s);
	if (r)
		return r;
	r = api_pyroscope_keep_events(j, &s);
	for (enum event e = 0; !r && e < _EVENT_ALL; e++)
		if (s.of[e])
			r = add_values(j, s.of[e], name, &values);
	put_names(j, &values);
	api_pyroscope_selections_done(&s);
	return r;
}

/* ---- Series ---- */

/* Sets of values of the same labels. */
struct sets {
	struct connect_job *job;
	struct query_names names;
	struct pyroscope_label labels[PYROSCOPE_MAX_LABELS]; /* private ones have no tags */
	size_t n_labels;
	struct pyroscope_type type; /* of the event that is read */
	char **values;		    /* n_labels of each set; NULL: the set lacks the label */
	size_t n, cap;		    /* values */
};

static int add_set(const char *const *values, const struct selection *sel, void *arg)
{
	struct sets *s = arg;

	(void)sel;
	if (s->n / s->n_labels == PYROSCOPE_MAX_VALUES)
		return api_connect_fail(&s->job->q, CONNECT_RESOURCE_EXHAUSTED,
					"there are more than %d sets of labels: ask for fewer "
					"labels, or add matchers",
					PYROSCOPE_MAX_VALUES);
	for (size_t i = 0; i < s->n_labels; i++) {
		const char *private = pyroscope_private_value(s->labels[i].name, &s->type);

		GROW(s->values, s->n, s->cap);
		s->values[s->n++] = xstrdup(*private ? private : values[i]);
	}
	s->job->q.n_rows++;
	return 0;
}

static int by_values(const void *a, const void *b, void *arg)
{
	const struct sets *s = arg;
	char *const *x = a, *const *y = b;
	int order = 0;

	for (size_t i = 0; !order && i < s->n_labels; i++)
		order = strcmp(x[i] ?: "", y[i] ?: "");
	return order;
}

static void put_sets(struct pyroscope_writer *w, struct sets *s)
{
	const size_t step = s->n_labels;

	if (s->n)
		qsort_r(s->values, s->n / step, step * sizeof(*s->values), by_values, s);
	for (size_t at = 0; at < s->n; at += step) {
		char **set = s->values + at;

		if (at && by_values(set - step, set, s) == 0)
			continue;
		pyroscope_put_begin(w, "labels_set");
		for (size_t i = 0; i < step; i++) {
			if (!set[i])
				continue;
			pyroscope_put_begin(w, "labels");
			pyroscope_put_text(w, "name", s->labels[i].name);
			pyroscope_put_text(w, "value", set[i]);
			pyroscope_put_end(w);
		}
		pyroscope_put_end(w);
	}
}

/* Without names, a set has these. Each value of another label would be a read of the store. */
static const char *const default_labels[] = {"service_name", "namespace"};

/* Takes the names of the labels that are asked for, in their order. */
static int take_names(struct sets *s, const json_t *list)
{
	bool all = !json_array_size(list);

	for (size_t i = 0; i < json_array_size(list); i++)
		query_names_add(&s->names, json_string_value(json_array_get(list, i)));
	for (size_t i = 0; all && i < ARRAY_SIZE(default_labels); i++)
		query_names_add(&s->names, default_labels[i]);
	for (size_t i = 0; all && pyroscope_private_names[i]; i++)
		query_names_add(&s->names, pyroscope_private_names[i]);
	query_names_sort(&s->names);
	s->n_labels = s->names.n;
	if (s->n_labels > PYROSCOPE_MAX_LABELS)
		return api_connect_fail(&s->job->q, CONNECT_INVALID_ARGUMENT, "more than %d labels",
					PYROSCOPE_MAX_LABELS);
	return 0;
}

/* Adds the sets of one event. */
static int add_sets(struct sets *s, const struct selection *sel)
{
	int r = 0;

	pyroscope_type_of(sel->event, &s->type);
	for (size_t i = 0; !r && i < s->n_labels; i++)
		r = api_pyroscope_label(s->job, s->names.names[i], sel, &s->labels[i]);
	return r ? r : api_pyroscope_combinations(s->job, sel, s->labels, s->n_labels, add_set, s);
}

int api_pyroscope_series(struct connect_job *j)
{
	struct sets s = {.job = j};
	struct pyroscope_selections of;
	int r = api_pyroscope_select_all(j, &of);

	if (r)
		return r;
	r = take_names(&s, json_object_get(j->request, "label_names"));
	if (!r)
		r = api_pyroscope_keep_events(j, &of);
	for (enum event e = 0; !r && e < _EVENT_ALL; e++)
		if (of.of[e])
			r = add_sets(&s, of.of[e]);
	if (!r)
		put_sets(&j->answer, &s);
	for (size_t i = 0; i < s.n; i++)
		free(s.values[i]);
	free(s.values);
	query_names_done(&s.names);
	api_pyroscope_selections_done(&of);
	return r;
}

/* ---- GetProfileStats ---- */

struct span {
	int64_t oldest_s, newest_s;
	bool any;
};

static void add_place(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	struct span *s = arg;

	(void)of;
	s->oldest_s = s->any ? MIN(s->oldest_s, oldest_s) : oldest_s;
	s->newest_s = MAX(s->newest_s, newest_s);
	s->any = true;
}

int api_pyroscope_profile_stats(struct connect_job *j)
{
	struct span s = {0};
	struct selection any = {0};
	struct field_error e = {0};
	int r = api_connect_limit(&j->q, &any);

	if (r)
		return r;
	r = store_oldest(j->q.store, &j->q.call->scope, any.given_up, add_place, &s, &e);
	if (r)
		return api_connect_store_failed(&j->q, r, &e);
	pyroscope_put_int(&j->answer, "data_ingested", s.any);
	pyroscope_put_int(&j->answer, "oldest_profile_time", s.oldest_s * 1000);
	pyroscope_put_int(&j->answer, "newest_profile_time", s.newest_s * 1000);
	return 0;
}
