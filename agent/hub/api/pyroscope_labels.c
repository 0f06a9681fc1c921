/* SPDX-License-Identifier: Apache-2.0 */
/* Which types and labels there are, and which values labels have. */
#include "hub/api/connect.h"

#include <stdlib.h>

#define HOUR_S	   3600
#define MAX_VALUES 10000 /* of a label, in one answer */

/* Values of several choices as one list. */
struct values {
	struct query_names list;
	bool more; /* than MAX_VALUES of one choice, which asks for one more */
	size_t n;  /* of the choice that is read */
	const struct store_choice *of;
};

static int take_value(const struct store_choice *c, const char *value, uint64_t n_samples,
		      void *arg)
{
	struct values *v = arg;

	(void)n_samples;
	if (v->of != c)
		v->n = 0;
	v->of = c;
	if (v->n++ < MAX_VALUES)
		query_names_add(&v->list, value);
	else
		v->more = true;
	return 0;
}

/* Reads the choices. The caller frees the list in each case. */
static int read_choices(struct connect_job *j, const struct store_choice *choices, size_t n,
			struct values *ret)
{
	struct field_error e = {0};
	int r = n ? store_choices(j->q.store, &j->q.call->scope, choices, n, take_value, ret, &e)
		  : 0;

	if (r)
		return api_connect_store_failed(&j->q, r, &e);
	j->q.n_rows += ret->list.n;
	if (ret->more)
		return api_connect_fail(&j->q, CONNECT_RESOURCE_EXHAUSTED,
					"there are more than %d values: ask for less time, or add "
					"matchers",
					MAX_VALUES);
	query_names_sort(&ret->list);
	return 0;
}

/* ---- ProfileTypes ---- */

/* Adds the events of which there are profiles. */
static int read_events(struct connect_job *j, const struct selection *sel, unsigned *ret_mask)
{
	const struct store_choice choice = {"profile_event_type", sel, _EVENT_MAX + 1};
	_cleanup_(query_names_done) struct query_names names = {0};
	struct values v = {0};
	int r = read_choices(j, &choice, 1, &v);
	enum event e;

	names = v.list;
	*ret_mask = 0;
	for (size_t i = 0; i < names.n; i++)
		if (profile_event_from_name(names.names[i], &e) == 0)
			*ret_mask |= 1u << e;
	return r;
}

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

	if (!r && (start < 0 || end < 0 || start > end))
		r = api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "start is after end");
	if (r)
		return r;
	/* old versions of Grafana ask without times */
	sel.time_end_s = end ? end / 1000 : (int64_t)(now_wall_ns() / NSEC_PER_SEC);
	sel.time_start_s = start ? start / 1000 : sel.time_end_s - HOUR_S;
	r = read_events(j, &sel, &mask);
	for (enum event e = 0; !r && e < _EVENT_MAX; e++)
		if (mask & 1u << e)
			put_type(&j->answer, e);
	return r;
}
