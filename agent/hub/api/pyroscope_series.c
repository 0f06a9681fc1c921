/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SelectSeries: values over time. Grafana's point at t has what came in (t - step, t], and points
 * are at start, start + step, ... up to end. The store counts whole seconds from a second on, and a
 * window at its last second: so a point is a step of the store that ends before the second of t.
 */
#include "hub/api/connect.h"

#include <math.h>
#include <stdlib.h>

struct series {
	char **values; /* of the labels; NULL: it lacks the label */
	int64_t *sums; /* one for each step */
	double total;
};
struct over_time {
	struct connect_job *job;
	struct pyroscope_label labels[PYROSCOPE_MAX_LABELS];
	size_t n_labels;
	/* by what the store groups: all labels at once, or one that samples have tags of */
	struct pyroscope_joint joint; /* n 0: it does not group by all */
	size_t last;		      /* n_labels: it does not group by one */
	struct pyroscope_type type;
	uint32_t step_s;
	size_t n_steps, limit; /* of series; 0: none */
	struct series *series;
	size_t n, cap;
	bool has_losses;
};

static int by_total(const void *a, const void *b)
{
	const struct series *x = a, *y = b;

	return (x->total < y->total) - (x->total > y->total);
}

static int by_labels(const void *a, const void *b, void *arg)
{
	const struct over_time *t = arg;
	const struct series *x = a, *y = b;
	int order = 0;

	for (size_t i = 0; !order && i < t->n_labels; i++)
		order = strcmp(x->values[i] ?: "", y->values[i] ?: "");
	return order;
}

static void sort_by_labels(struct over_time *t)
{
	if (t->n)
		qsort_r(t->series, t->n, sizeof(*t->series), by_labels, t);
}

static void series_done(struct series *s, size_t n_labels)
{
	for (size_t i = 0; i < n_labels; i++)
		free(s->values[i]);
	free(s->values);
	free(s->sums);
}

/* ---- reading ---- */

/* Whether the request wants the greatest series only, and so few that the hub can tell them. */
static bool is_limited(const struct over_time *t)
{
	return t->limit && t->limit <= QUERY_MAX_GROUPS;
}

/* Keeps the series with the greatest sums, if there is a limit. */
static int keep_greatest(struct over_time *t)
{
	if (!is_limited(t) && t->n > QUERY_MAX_GROUPS)
		return api_connect_fail(&t->job->q, CONNECT_RESOURCE_EXHAUSTED,
					"there are more than %d series: group by fewer labels, or "
					"add matchers",
					QUERY_MAX_GROUPS);
	if (!is_limited(t) || t->n <= t->limit)
		return 0;
	qsort(t->series, t->n, sizeof(*t->series), by_total);
	while (t->n > t->limit)
		series_done(&t->series[--t->n], t->n_labels);
	return 0;
}

/* Takes the values of one group: what the store has grouped by, it has itself. */
static void add_group(struct over_time *t, const char *const *values, struct series_group *g)
{
	struct series s = {.values = xcalloc(t->n_labels + 1, sizeof(char *))};
	const char *private;

	for (size_t i = 0; i < t->n_labels; i++) {
		private = pyroscope_private_value(t->labels[i].name, &t->type);
		s.values[i] = xstrdup(*private ? private : i == t->last ? g->value : values[i]);
	}
	if (t->joint.n)
		api_pyroscope_joint_put(&t->joint, g->value, s.values);
	s.sums = TAKE_PTR(g->values);
	for (size_t i = 0; i < t->n_steps; i++)
		s.total += (double)s.sums[i];
	GROW(t->series, t->n, t->cap);
	t->series[t->n++] = s;
}

static int add_groups(struct over_time *t, const char *const *values, struct store_series *got)
{
	assert_se(got->n_steps == t->n_steps);
	t->has_losses |= got->n_losses > 0;
	t->job->q.n_rows += got->n_groups;
	if (got->cut_groups || (got->others && !is_limited(t)))
		return api_connect_fail(
			&t->job->q, CONNECT_RESOURCE_EXHAUSTED,
			"there are more series than the hub can tell apart: group by another "
			"label, add matchers, or choose a longer step");
	for (size_t i = 0; i < got->n_groups; i++)
		add_group(t, values, &got->groups[i]);
	return 0;
}

/*
 * Reads the greatest series of one combination of values, which lacks those by which the store
 * groups.
 */
static int read_series(struct over_time *t, const char *const *values, const struct selection *sel)
{
	struct selection timed = *sel;
	const struct series_request request = {
		.sel = &timed,
		.step_s = t->step_s,
		.group_by = t->joint.n		    ? t->joint.tag
			    : t->last < t->n_labels ? t->labels[t->last].tags[0]
						    : NULL,
		.limit = is_limited(t) ? t->limit : QUERY_MAX_GROUPS};
	struct store_series got;
	struct field_error e = {0};
	int r = api_connect_limit(&t->job->q, &timed);

	if (r)
		return r;
	r = store_series(t->job->q.store, &t->job->q.call->scope, &request, &got, &e);
	if (r)
		return api_connect_store_failed(&t->job->q, r, &e);
	r = add_groups(t, values, &got);
	store_series_done(&got);
	return r;
}

static int add_combination(const char *const *values, const struct selection *sel, void *arg)
{
	struct over_time *t = arg;
	int r = api_pyroscope_count_read(t->job);

	if (!r)
		r = read_series(t, values, sel);
	return r ? r : keep_greatest(t);
}

/* The last label that is one tag of samples; n_labels: none is. */
static size_t last_of_samples(const struct over_time *t)
{
	for (size_t i = t->n_labels; i; i--)
		if (t->labels[i - 1].tags[0] && !t->labels[i - 1].tags[1] &&
		    store_is_tag_of_samples(t->labels[i - 1].tags[0]))
			return i - 1;
	return t->n_labels;
}

/* The store groups by all labels, or by one that samples have, and the others are combined. */
static int read_all(struct over_time *t, const struct selection *sel)
{
	struct pyroscope_label others[PYROSCOPE_MAX_LABELS];

	memcpy(others, t->labels, t->n_labels * sizeof(*others));
	t->last = last_of_samples(t);
	if (t->last < t->n_labels)
		others[t->last].tags[0] = NULL;
	else
		api_pyroscope_joint_init(&t->joint, t->labels, t->n_labels);
	for (size_t i = 0; i < t->joint.n; i++)
		others[t->joint.at[i]].tags[0] = NULL;
	return api_pyroscope_combinations(t->job, sel, others, t->n_labels, add_combination, t);
}

/* ---- the answer ---- */

static void put_series(struct over_time *t, const struct series *s, int64_t start_ms)
{
	struct pyroscope_writer *w = &t->job->answer;

	pyroscope_put_begin(w, "series");
	for (size_t i = 0; i < t->n_labels; i++) {
		if (!s->values[i])
			continue;
		pyroscope_put_begin(w, "labels");
		pyroscope_put_text(w, "name", t->labels[i].name);
		pyroscope_put_text(w, "value", s->values[i]);
		pyroscope_put_end(w);
	}
	for (size_t i = 0; i < t->n_steps; i++) {
		if (!s->sums[i])
			continue;
		pyroscope_put_begin(w, "points");
		pyroscope_put_double(w, "value", (double)s->sums[i] * (double)t->type.factor);
		pyroscope_put_int(w, "timestamp", start_ms + (int64_t)i * t->step_s * 1000);
		pyroscope_put_end(w);
	}
	pyroscope_put_end(w);
}

/* ---- the request ---- */

static int take_step(struct over_time *t, const json_t *request, struct selection *sel)
{
	const json_t *j = json_object_get(request, "step");
	int64_t start_ms = json_int_at(request, "start", 0),
		end_ms = json_int_at(request, "end", 0);
	double step = json_real_value(j);

	if (!(step >= 0.001))
		return api_connect_fail(&t->job->q, CONNECT_INVALID_ARGUMENT,
					"step: expected seconds");
	if (floor(step) != step || step > INT32_MAX)
		return api_connect_fail(&t->job->q, CONNECT_INVALID_ARGUMENT,
					"step: this hub has windows of 10 s, and steps of whole "
					"seconds");
	t->step_s = (uint32_t)step;
	t->n_steps = (size_t)((end_ms - start_ms) / 1000 / t->step_s) + 1;
	if (t->n_steps > STORE_MAX_STEPS)
		return api_connect_fail(&t->job->q, CONNECT_INVALID_ARGUMENT,
					"step: more than %d points: choose a longer step",
					STORE_MAX_STEPS);
	sel->time_start_s = start_ms / 1000 - t->step_s;
	if (sel->time_start_s < 0)
		return api_connect_fail(&t->job->q, CONNECT_INVALID_ARGUMENT,
					"start: less than a step after 1970");
	sel->time_end_s = sel->time_start_s + (int64_t)t->n_steps * t->step_s - 1;
	return 0;
}

/* What this hub cannot do is refused, not left out. */
static int take_rest(struct over_time *t, const json_t *request, const struct selection *sel)
{
	bool snapshot = profile_event_info(sel->event)->snapshot;
	const json_t *stacks = json_object_get(request, "stack_trace_selector");
	int64_t limit = json_int_at(request, "limit", 0);

	if (json_int_at(request, "aggregation", 0) && !snapshot)
		return api_connect_fail(&t->job->q, CONNECT_UNIMPLEMENTED,
					"aggregation: values of this type can only be added up");
	if (json_array_size(json_object_get(stacks, "call_site")) ||
	    json_object_size(json_object_get(stacks, "frame_filter")))
		return api_connect_fail(&t->job->q, CONNECT_UNIMPLEMENTED,
					"stack_trace_selector: this hub has no series of single "
					"functions");
	if (limit < 0)
		return api_connect_fail(&t->job->q, CONNECT_INVALID_ARGUMENT,
					"limit: expected a number of series");
	t->limit = (size_t)limit;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct pyroscope_label *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Adds the label of a name, unless it is there already. */
static int take_group(struct connect_job *j, const char *name, const struct selection *sel,
		      struct pyroscope_label *labels, size_t *n)
{
	int r;

	for (size_t k = 0; k < *n; k++)
		if (streq(labels[k].name, name))
			return 0;
	r = api_pyroscope_label(j, name, sel, &labels[*n]);
	if (!r && labels[*n].tags[0] && !query_tag_can_group(labels[*n].tags[0], true))
		r = api_connect_fail(&j->q, CONNECT_UNIMPLEMENTED,
				     "group_by: this hub has no series by %.100s", name);
	++*n;
	return r;
}

int api_pyroscope_groups(struct connect_job *j, const json_t *groups, const struct selection *sel,
			 struct pyroscope_label *ret, size_t *ret_n)
{
	int r = 0;

	*ret_n = 0;
	if (json_array_size(groups) > PYROSCOPE_MAX_LABELS)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"group_by: more than %d labels", PYROSCOPE_MAX_LABELS);
	for (size_t i = 0; !r && i < json_array_size(groups); i++)
		r = take_group(j, json_string_value(json_array_get(groups, i)), sel, ret, ret_n);
	qsort(ret, *ret_n, sizeof(*ret), by_name);
	return r;
}

int api_pyroscope_select_series(struct connect_job *j)
{
	const json_t *request = j->request, *groups = json_object_get(request, "group_by");
	struct over_time t = {.job = j};
	struct selection *sel = NULL;
	int r = api_pyroscope_select(j, request, &sel);

	if (r)
		return r;
	pyroscope_type_of(sel->event, &t.type);
	r = take_rest(&t, request, sel);
	if (!r)
		r = api_pyroscope_groups(j, groups, sel, t.labels, &t.n_labels);
	if (!r)
		r = take_step(&t, request, sel);
	if (!r)
		r = read_all(&t, sel);
	if (!r) {
		sort_by_labels(&t);
		api_query_left_out(&j->q, t.has_losses, false);
		for (size_t i = 0; i < t.n; i++)
			put_series(&t, &t.series[i], json_int_at(request, "start", 0));
	}
	for (size_t i = 0; i < t.n; i++)
		series_done(&t.series[i], t.n_labels);
	free(t.series);
	api_pyroscope_joint_done(&t.joint);
	store_selection_free(sel);
	return r;
}
