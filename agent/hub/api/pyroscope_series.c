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
	size_t n_labels, last; /* the label by which the store groups; n_labels: none */
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

/* Takes the values of one group, whose value of the last label is its own. */
static void add_group(struct over_time *t, const char *const *values, struct series_group *g)
{
	struct series s = {.values = xcalloc(t->n_labels + 1, sizeof(char *))};

	for (size_t i = 0; i < t->n_labels; i++) {
		const char *private = pyroscope_private_value(t->labels[i].name, &t->type);

		s.values[i] = xstrdup(*private ? private : values[i]);
	}
	s.sums = TAKE_PTR(g->values);
	for (size_t i = 0; i < t->n_steps; i++)
		s.total += (double)s.sums[i];
	GROW(t->series, t->n, t->cap);
	t->series[t->n++] = s;
}

static int add_groups(struct over_time *t, const char **values, struct store_series *got,
		      bool grouped)
{
	assert_se(got->n_steps == t->n_steps);
	t->has_losses |= got->n_losses > 0;
	t->job->q.n_rows += got->n_groups;
	if (got->cut_groups || (got->others && !is_limited(t)))
		return api_connect_fail(
			&t->job->q, CONNECT_RESOURCE_EXHAUSTED,
			"there are more series than the hub can tell apart: group by another "
			"label, add matchers, or choose a longer step");
	for (size_t i = 0; i < got->n_groups; i++) {
		if (grouped)
			values[t->last] = got->groups[i].value;
		add_group(t, values, &got->groups[i]);
	}
	return 0;
}

/*
 * Reads the greatest series of one combination of values, at most `limit`. The store tells the
 * values of t->last apart, which `values` does not have.
 */
static int read_series(struct over_time *t, const char **values, const struct selection *sel,
		       size_t limit)
{
	struct selection timed = *sel;
	const struct series_request request = {
		&timed, t->step_s, t->last < t->n_labels ? t->labels[t->last].tags[0] : NULL,
		limit};
	struct store_series got;
	struct field_error e = {0};
	int r = api_connect_limit(&t->job->q, &timed);

	if (r)
		return r;
	r = store_series(t->job->q.store, &t->job->q.call->scope, &request, &got, &e);
	if (r)
		return api_connect_store_failed(&t->job->q, r, &e);
	r = add_groups(t, values, &got, request.group_by != NULL);
	store_series_done(&got);
	return r;
}

static int add_combination(const char *const *values, const struct selection *sel, void *arg)
{
	struct over_time *t = arg;
	const char *of[PYROSCOPE_MAX_LABELS];
	int r = api_pyroscope_count_read(t->job);

	memcpy(of, values, t->n_labels * sizeof(*of));
	if (!r)
		r = read_series(t, of, sel, is_limited(t) ? t->limit : QUERY_MAX_GROUPS);
	return r ? r : keep_greatest(t);
}

static void add_series(struct series *to, const struct series *s, size_t n_steps)
{
	for (size_t i = 0; i < n_steps; i++)
		if (__builtin_add_overflow(to->sums[i], s->sums[i], &to->sums[i]))
			to->sums[i] = INT64_MAX;
	to->total += s->total;
}

/* Makes one series of those that have the same labels. */
static void merge_same(struct over_time *t)
{
	size_t n = 0;

	sort_by_labels(t);
	for (size_t i = 0; i < t->n; i++) {
		if (n && by_labels(&t->series[n - 1], &t->series[i], t) == 0) {
			add_series(&t->series[n - 1], &t->series[i], t->n_steps);
			series_done(&t->series[i], t->n_labels);
		} else {
			t->series[n++] = t->series[i];
		}
	}
	t->n = n;
}

/*
 * Alone, a label of two tags: what has the first one is grouped by it, the rest by the second. Both
 * may have the same value. So more are read than the limit: a part of a great sum may be small.
 */
static int read_pair(struct over_time *t, const struct selection *sel)
{
	const struct pyroscope_label pair = t->labels[0];
	struct predicate p = {.op = PRED_NOT_NULL, .tag = (char *)(uintptr_t)pair.tags[0]};
	struct pyroscope_narrowed narrowed;
	const char *value = NULL;
	int r;

	api_pyroscope_narrow(&narrowed, sel, &p);
	t->last = 0;
	r = read_series(t, &value, &narrowed.sel, QUERY_MAX_GROUPS);
	p.op = PRED_IS_NULL;
	t->labels[0].tags[0] = pair.tags[1];
	if (!r)
		r = read_series(t, &value, &narrowed.sel, QUERY_MAX_GROUPS);
	t->labels[0] = pair;
	merge_same(t);
	return r ? r : keep_greatest(t);
}

/* The store groups by one of the labels that have one tag, and the others are combined. */
static int read_all(struct over_time *t, const struct selection *sel)
{
	struct pyroscope_label others[PYROSCOPE_MAX_LABELS];

	if (t->n_labels == 1 && t->labels[0].tags[1])
		return read_pair(t, sel);
	memcpy(others, t->labels, t->n_labels * sizeof(*others));
	for (size_t i = t->last = t->n_labels; i && t->last == t->n_labels; i--)
		if (others[i - 1].tags[0] && !others[i - 1].tags[1])
			t->last = i - 1;
	if (t->last < t->n_labels)
		others[t->last].tags[0] = NULL;
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
	int64_t limit = json_int_at(request, "limit", 0);

	if (json_int_at(request, "aggregation", 0) && !snapshot)
		return api_connect_fail(&t->job->q, CONNECT_UNIMPLEMENTED,
					"aggregation: values of this type can only be added up");
	if (json_array_size(json_at(request, "stack_trace_selector.call_site")))
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
	store_selection_free(sel);
	return r;
}
