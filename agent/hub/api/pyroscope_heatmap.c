/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SelectHeatmap: how many profiles had which value when. The store tells values of processes over
 * time: in steps that are no longer than a window, each is the value of a profile. Of a snapshot, a
 * slot has the newest profile of each process. Labels are those of SelectSeries.
 */
#include "hub/api/connect.h"
#include "hub/pyroscope/heatmap.h"

#include <math.h>
#include <stdlib.h>

#define MAX_READS  5 /* of the store, for the time of one series: each has STORE_MAX_STEPS steps */
#define MAX_STEP_S (24 * 3600.0) /* a slot */

enum heatmap_type { HEATMAP_UNSPECIFIED, HEATMAP_INDIVIDUAL, HEATMAP_SPAN }; /* of the API */

struct heat_series {
	char **values; /* of the labels; NULL: it lacks the label */
	struct pyroscope_point *points;
	size_t n, cap, n_counted; /* counted: bytes that the budget has given */
	double total;
};
struct heatmap {
	struct connect_job *job;
	struct pyroscope_heat heat;
	struct pyroscope_type type;
	struct pyroscope_label labels[PYROSCOPE_MAX_LABELS];
	size_t n_labels, limit; /* limit: of series; 0: none */
	uint32_t step_s;	/* of the store's answers */
	struct heat_series *series;
	size_t n, cap;
	bool has_losses;
};

static int too_large(struct heatmap *h)
{
	return api_connect_fail(&h->job->q, CONNECT_RESOURCE_EXHAUSTED,
				"the answer is too large: ask for less time, or add matchers");
}

/* ---- reading ---- */

static int64_t scaled(const struct heatmap *h, int64_t value)
{
	int64_t v;

	return __builtin_mul_overflow(value, h->type.factor, &v) ? INT64_MAX : v;
}

static int add_point(struct heatmap *h, struct heat_series *s, int64_t end_s, int64_t value)
{
	GROW(s->points, s->n, s->cap);
	s->points[s->n++] = (struct pyroscope_point){end_s * 1000, scaled(h, value)};
	s->total += (double)value;
	return buf_budget_grow(h->job->out.budget, s->cap * sizeof(*s->points), &s->n_counted);
}

static int add_process(struct heatmap *h, struct heat_series *s, int64_t start_s,
		       const int64_t *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (values[i] > 0 &&
		    add_point(h, s, start_s + (int64_t)(i + 1) * h->step_s, values[i]))
			return too_large(h);
	return 0;
}

/* Reads what the store answers at once. */
static int read_part(struct heatmap *h, struct heat_series *s, const struct selection *part)
{
	const struct series_request request = {part, h->step_s, STORE_TAG_PROCESS,
					       QUERY_MAX_GROUPS};
	struct store_series got;
	struct field_error e = {0};
	int r = store_series(h->job->q.store, &h->job->q.call->scope, &request, &got, &e);

	if (r)
		return api_connect_store_failed(&h->job->q, r, &e);
	h->has_losses |= got.n_losses > 0;
	if (got.others || got.cut_groups)
		r = api_connect_fail(&h->job->q, CONNECT_RESOURCE_EXHAUSTED,
				     "there are more than %d processes: ask for less time, or add "
				     "matchers",
				     QUERY_MAX_GROUPS);
	for (size_t i = 0; !r && i < got.n_groups; i++)
		r = add_process(h, s, part->time_start_s, got.groups[i].values, got.n_steps);
	h->job->q.n_rows += got.n_groups;
	store_series_done(&got);
	return r;
}

static int read_parts(struct heatmap *h, struct heat_series *s, const struct selection *all)
{
	struct selection part = *all;
	const int64_t most_s = (int64_t)STORE_MAX_STEPS * h->step_s;
	int r = 0;

	for (int64_t at = all->time_start_s; !r && at <= all->time_end_s; at += most_s) {
		part.time_start_s = at;
		part.time_end_s = MIN(at + most_s - 1, all->time_end_s);
		r = api_connect_limit(&h->job->q, &part);
		if (!r)
			r = read_part(h, s, &part);
	}
	return r;
}

static int add_combination(const char *const *values, const struct selection *sel, void *arg)
{
	struct heatmap *h = arg;
	struct heat_series *s;

	GROW(h->series, h->n, h->cap);
	s = &h->series[h->n++];
	*s = (struct heat_series){.values = xcalloc(h->n_labels + 1, sizeof(char *))};
	if (api_pyroscope_count_read(h->job))
		return -EINVAL;
	for (size_t i = 0; i < h->n_labels; i++) {
		const char *private = pyroscope_private_value(h->labels[i].name, &h->type);

		s->values[i] = xstrdup(*private ? private : values[i]);
	}
	return read_parts(h, s, sel);
}

/* ---- the answer ---- */

static void put_series(const struct heatmap *h, const struct heat_series *s)
{
	struct pyroscope_writer *w = &h->job->answer;

	if (!s->n)
		return;
	pyroscope_put_begin(w, "series");
	for (size_t i = 0; i < h->n_labels; i++) {
		if (!s->values[i])
			continue;
		pyroscope_put_begin(w, "labels");
		pyroscope_put_text(w, "name", h->labels[i].name);
		pyroscope_put_text(w, "value", s->values[i]);
		pyroscope_put_end(w);
	}
	pyroscope_put_heat(w, &h->heat, s->points, s->n);
	pyroscope_put_end(w);
}

static int by_total(const void *a, const void *b)
{
	const struct heat_series *x = a, *y = b;

	return (x->total < y->total) - (x->total > y->total);
}

/* All series have the same rows. Those with the greatest sums stay, if there is a limit. */
static void put_answer(struct heatmap *h)
{
	size_t n = h->limit ? MIN(h->limit, h->n) : h->n;

	if (n < h->n)
		qsort(h->series, h->n, sizeof(*h->series), by_total);
	for (size_t i = 0; i < n; i++)
		pyroscope_heat_widen(&h->heat, h->series[i].points, h->series[i].n);
	for (size_t i = 0; i < n; i++)
		put_series(h, &h->series[i]);
}

/* ---- the request ---- */

static int take_slots(struct heatmap *h, const json_t *request)
{
	double step = json_real_value(json_object_get(request, "step"));

	if (!(step >= 0.001 && step <= MAX_STEP_S))
		return api_connect_fail(&h->job->q, CONNECT_INVALID_ARGUMENT,
					"step: expected seconds, at most %.0f", MAX_STEP_S);
	h->heat = (struct pyroscope_heat){.start_ms = json_int_at(request, "start", 0),
					  .end_ms = json_int_at(request, "end", 0),
					  .step_ms = llround(step * 1000),
					  PYROSCOPE_HEAT_EMPTY};
	if ((h->heat.end_ms - h->heat.start_ms) / h->heat.step_ms >= STORE_MAX_STEPS)
		return api_connect_fail(&h->job->q, CONNECT_INVALID_ARGUMENT,
					"step: more than %d slots: choose a longer step",
					STORE_MAX_STEPS);
	return 0;
}

/* Slots have what ended after the one before them, so the first one begins a step earlier. */
static void take_times(struct heatmap *h, struct selection *sel)
{
	const bool snapshot = profile_event_info(sel->event)->snapshot;
	int64_t all_s;

	sel->time_start_s = MAX((h->heat.start_ms - h->heat.step_ms) / 1000, (int64_t)0);
	sel->time_end_s = MAX(h->heat.end_ms / 1000 - 1, sel->time_start_s);
	all_s = sel->time_end_s - sel->time_start_s + 1;
	h->step_s = snapshot ? (uint32_t)((h->heat.step_ms + 999) / 1000)
			     : (uint32_t)((all_s - 1) / (MAX_READS * STORE_MAX_STEPS)) + 1;
}

static int take_rest(struct heatmap *h, const json_t *request)
{
	int64_t type = json_int_at(request, "query_type", HEATMAP_INDIVIDUAL);
	int64_t limit = json_int_at(request, "limit", 0);

	if (type != HEATMAP_UNSPECIFIED && type != HEATMAP_INDIVIDUAL)
		return api_connect_fail(&h->job->q, CONNECT_UNIMPLEMENTED,
					"query_type: this hub has no heat maps of spans");
	if (limit < 0)
		return api_connect_fail(&h->job->q, CONNECT_INVALID_ARGUMENT,
					"limit: expected a number of series");
	h->limit = (size_t)limit;
	return 0;
}

static void heatmap_done(struct heatmap *h)
{
	for (size_t i = 0; i < h->n; i++) {
		for (size_t k = 0; k < h->n_labels; k++)
			free(h->series[i].values[k]);
		free(h->series[i].values);
		free(h->series[i].points);
	}
	free(h->series);
}

int api_pyroscope_select_heatmap(struct connect_job *j)
{
	struct heatmap h = {.job = j};
	struct selection *sel = NULL;
	int r = api_pyroscope_select(j, j->request, &sel);

	if (r)
		return r;
	pyroscope_type_of(sel->event, &h.type);
	r = take_slots(&h, j->request);
	if (!r)
		r = take_rest(&h, j->request);
	if (!r)
		r = api_pyroscope_groups(j, json_object_get(j->request, "group_by"), sel, h.labels,
					 &h.n_labels);
	if (!r) {
		take_times(&h, sel);
		r = api_pyroscope_combinations(j, sel, h.labels, h.n_labels, add_combination, &h);
	}
	if (!r) {
		api_query_left_out(&j->q, h.has_losses, false);
		put_answer(&h);
	}
	heatmap_done(&h);
	store_selection_free(sel);
	return r;
}
