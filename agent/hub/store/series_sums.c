/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a series: steps, groups, snapshots, losses. */
#include "hub/store/series_sums.h"

#include <stdlib.h>

static int64_t *sums_of(struct series_sums *s, size_t group)
{
	if (group >= s->cap_sums) {
		size_t cap = MAX(s->cap_sums * 2, group + 64);

		s->sums = xrealloc(s->sums, cap * sizeof(*s->sums));
		memset(s->sums + s->cap_sums, 0, (cap - s->cap_sums) * sizeof(*s->sums));
		s->cap_sums = cap;
	}
	if (s->sums[group])
		return s->sums[group];
	if ((s->n_sums + 1) * s->n_steps > s->values_max)
		return s->others = s->others ?: xcalloc(s->n_steps, sizeof(int64_t));
	s->n_sums++;
	return s->sums[group] = xcalloc(s->n_steps, sizeof(int64_t));
}

static void add_at(struct series_sums *s, size_t group, size_t step, int64_t value)
{
	int64_t *sums = sums_of(s, group);

	sums[step] = MIN(sums[step] + value, PROFILE_MAX_VALUE);
}

/* The step of a second. The time before the selection is negative. */
static int64_t step_of(const struct series_sums *s, int64_t time_s)
{
	int64_t after_s = time_s - s->r->sel->time_start_s;

	return after_s < 0 ? -1 : after_s / s->r->step_s;
}

void store_series_add(struct series_sums *s, size_t group, int64_t time_s, int64_t value)
{
	int64_t step = step_of(s, time_s);

	if (step >= 0 && (size_t)step < s->n_steps)
		add_at(s, group, (size_t)step, value);
}

int store_series_add_live(struct series_sums *s, const struct live_value *v)
{
	if (s->n_live >= s->values_max)
		return -EFBIG;
	GROW(s->live, s->n_live, s->cap_live);
	s->live[s->n_live++] = *v;
	return 0;
}

/* How old a snapshot may be at the end of a step. */
static int64_t snapshot_s(const struct series_request *r)
{
	return MAX((int64_t)r->step_s, (int64_t)STORE_SNAPSHOT_S);
}

/* The selection whose profiles are read: snapshots before its time count in its first steps. */
struct selection store_series_reach(const struct series_sums *s)
{
	struct selection sel = *s->r->sel;

	if (s->snapshot)
		sel.time_start_s -= MIN(sel.time_start_s, snapshot_s(s->r));
	return sel;
}

/* ---- snapshots: each lives until the next one of its process, or until it is too old ---- */

static int by_process_and_time(const void *a, const void *b)
{
	const struct live_value *x = a, *y = b;

	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return x->time_s < y->time_s ? -1 : x->time_s > y->time_s;
}

/* Of one process and second, those that count come first. */
static int by_snapshot(const void *a, const void *b)
{
	const struct live_value *x = a, *y = b;
	int order = by_process_and_time(a, b);

	return order ? order : x->id > y->id ? -1 : x->id < y->id;
}

/* The last second of a step. */
static int64_t end_of(const struct series_sums *s, size_t step)
{
	return MIN(s->r->sel->time_start_s + (int64_t)(step + 1) * s->r->step_s - 1,
		   s->r->sel->time_end_s);
}

/* Adds a value to each step that ends from its own time until before until_s. */
static void spread(struct series_sums *s, const struct live_value *v, int64_t until_s)
{
	int64_t step = MAX(step_of(s, v->time_s), 0);

	for (; v->value && (size_t)step < s->n_steps && end_of(s, (size_t)step) < until_s; step++)
		if (end_of(s, (size_t)step) >= v->time_s)
			add_at(s, v->group, (size_t)step, v->value);
}

static void spread_snapshots(struct series_sums *s)
{
	size_t next = 0, first = 0;

	if (s->n_live)
		qsort(s->live, s->n_live, sizeof(*s->live), by_snapshot);
	for (size_t i = 0; i < s->n_live; i++) {
		const struct live_value *v = &s->live[i];
		int64_t until_s = v->time_s + snapshot_s(s->r);

		if (by_process_and_time(&s->live[first], v) != 0)
			first = i;
		if (v->id != s->live[first].id)
			continue;
		for (next = MAX(next, i);
		     next < s->n_live && by_process_and_time(&s->live[next], v) == 0; next++)
			;
		if (next < s->n_live && s->live[next].process == v->process)
			until_s = MIN(until_s, s->live[next].time_s);
		spread(s, v, until_s);
	}
}

/* ---- the result ---- */

struct group_sum {
	size_t group;
	int64_t sum;
};

static int by_sum(const void *a, const void *b)
{
	const struct group_sum *x = a, *y = b;

	if (x->sum != y->sum)
		return x->sum > y->sum ? -1 : 1;
	return x->group < y->group ? -1 : x->group > y->group;
}

static struct group_sum *order_groups(const struct series_sums *s, size_t *ret_n)
{
	struct group_sum *order = xcalloc(s->cap_sums + 1, sizeof(*order));
	size_t n = 0;

	for (size_t g = 0; g < s->cap_sums; g++) {
		if (!s->sums[g])
			continue;
		order[n] = (struct group_sum){.group = g};
		for (size_t i = 0; i < s->n_steps; i++)
			order[n].sum = MIN(order[n].sum + s->sums[g][i], PROFILE_MAX_VALUE);
		n++;
	}
	qsort(order, n, sizeof(*order), by_sum);
	*ret_n = n;
	return order;
}

static void add_others(struct store_series *ret, const int64_t *values)
{
	if (!ret->others)
		ret->others = xcalloc(ret->n_steps, sizeof(int64_t));
	for (size_t i = 0; i < ret->n_steps; i++)
		ret->others[i] = MIN(ret->others[i] + values[i], PROFILE_MAX_VALUE);
}

/* Moves the sums to the result. */
void store_series_hand_out(struct series_sums *s, char **names, struct store_series *ret)
{
	_cleanup_free_ struct group_sum *order = NULL;
	size_t n;

	if (s->snapshot)
		spread_snapshots(s);
	order = order_groups(s, &n);
	ret->cut_groups = s->others != NULL;
	ret->others = TAKE_PTR(s->others);
	ret->groups = xcalloc(MIN(n, s->r->limit) + 1, sizeof(*ret->groups));
	for (size_t i = 0; i < n; i++) {
		size_t g = order[i].group;

		if (i >= s->r->limit) {
			add_others(ret, s->sums[g]);
			continue;
		}
		ret->groups[ret->n_groups++] = (struct series_group){
			.value = TAKE_PTR(names[g]), .values = TAKE_PTR(s->sums[g])};
	}
}

static struct series_loss *loss_of(struct store_series *ret, size_t *cap, const char *reason)
{
	if (ret->n_losses >= LOSSES_MAX)
		reason = "other";
	for (size_t i = 0; i < ret->n_losses; i++)
		if (streq(ret->losses[i].reason, reason))
			return &ret->losses[i];
	GROW(ret->losses, ret->n_losses, *cap);
	ret->losses[ret->n_losses] = (struct series_loss){
		.reason = xstrdup(reason),
		.n_samples = xcalloc(ret->n_steps, sizeof(uint64_t)),
		.time_ns = xcalloc(ret->n_steps, sizeof(uint64_t)),
	};
	return &ret->losses[ret->n_losses++];
}

static void add_loss(uint64_t *sum, int64_t n)
{
	*sum = MIN(*sum + (uint64_t)MIN(MAX(n, 0), PROFILE_MAX_VALUE), (uint64_t)PROFILE_MAX_VALUE);
}

void store_series_add_loss(struct series_sums *s, struct store_series *ret, const char *reason,
			   int64_t time_s, int64_t n_samples, int64_t time_ns)
{
	const struct selection *sel = s->r->sel;
	struct series_loss *l = loss_of(ret, &s->cap_losses, reason);
	/* a loss that began before the time or ends after it counts at its edge */
	size_t step = (size_t)step_of(s, MIN(MAX(time_s, sel->time_start_s), sel->time_end_s));

	add_loss(&l->n_samples[step], n_samples);
	add_loss(&l->time_ns[step], time_ns);
}

void store_series_add_start(struct store_series *ret, int64_t time_s)
{
	ret->more_starts |= ret->n_starts == STORE_MAX_STARTS;
	if (!ret->more_starts)
		ret->starts[ret->n_starts++] = time_s;
}

int store_series_begin(struct series_sums *s, const struct series_request *r, size_t values_max,
		       struct store_series *ret, struct field_error *reterr)
{
	const uint64_t last_s = (uint64_t)r->sel->time_end_s - (uint64_t)r->sel->time_start_s;

	if (!r->step_s)
		return field_error_set(reterr, "step", "step: expected at least 1 second");
	if (last_s / r->step_s >= STORE_MAX_STEPS)
		return field_error_set(reterr, "step", "step: more than %d steps", STORE_MAX_STEPS);
	*s = (struct series_sums){.r = r,
				  .values_max = values_max,
				  .snapshot = profile_event_info(r->sel->event)->snapshot,
				  .n_steps = (size_t)(last_s / r->step_s + 1)};
	ret->n_steps = s->n_steps;
	ret->starts = xcalloc(STORE_MAX_STARTS, sizeof(int64_t));
	return 0;
}

void store_series_end(struct series_sums *s)
{
	for (size_t g = 0; g < s->cap_sums; g++)
		free(s->sums[g]);
	free(s->sums);
	free(s->others);
	free(s->live);
}
