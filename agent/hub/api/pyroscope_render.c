/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /pyroscope/render and /pyroscope/render-diff: a flame graph with its values over time, or a
 * call graph, of the parameters of the URL. Rights, limits and errors are as in Connect calls.
 */
#include "hub/api/pyroscope_stacks.h"
#include "hub/pyroscope/render.h"

#include <inttypes.h>

#define TIMELINE_POINTS 500
#define DOT_TYPE	"text/plain; charset=utf-8"

int api_render_request(const struct call *c, json_t **ret, struct field_error *reterr)
{
	return pyroscope_read_render(c->parameters, str_has_suffix(c->path, "-diff"),
				     (int64_t)(now_wall_ns() / NSEC_PER_MSEC), ret, reterr);
}

/* How the readers of this form show values: by these units, values of a second as samples. */
static struct pyroscope_render shown_as(const struct pyroscope_type *t)
{
	const bool time = streq(t->parts[2], "nanoseconds");

	return (struct pyroscope_render){
		.name = t->parts[1],
		.units = time				? "samples"
			 : strstr(t->parts[2], "bytes") ? "bytes"
							: t->parts[2],
		.sample_rate = time ? NSEC_PER_SEC : 1,
	};
}

/* ---- values over time ---- */

static void put_timeline(struct connect_job *j, const struct stacks_query *q, uint32_t step_s,
			 const struct store_series *s)
{
	buf_printf(&j->out, ",\"timeline\":{\"startTime\":%" PRId64 ",\"samples\":[",
		   q->selection->time_start_s);
	for (size_t i = 0; i < s->n_steps; i++) {
		int64_t v = s->n_groups ? s->groups[0].values[i] : 0;

		if (__builtin_mul_overflow(v, q->type.factor, &v))
			v = INT64_MAX;
		buf_printf(&j->out, "%s%" PRId64, i ? "," : "", v);
	}
	buf_printf(&j->out, "],\"durationDelta\":%" PRIu32 ",\"watermarks\":null}", step_s);
}

static int add_timeline(struct connect_job *j, const struct stacks_query *q)
{
	struct selection *sel = q->selection;
	const uint32_t step_s = query_round_step(
		(uint64_t)(sel->time_end_s - sel->time_start_s) + 1, TIMELINE_POINTS);
	struct store_series s;
	struct field_error e = {0};
	int r = api_connect_limit(&j->q, sel);

	if (r)
		return r;
	r = store_series(j->q.store, &j->q.call->scope,
			 &(struct series_request){sel, step_s, NULL, 1}, &s, &e);
	if (r)
		return api_connect_store_failed(&j->q, r, &e);
	put_timeline(j, q, step_s, &s);
	store_series_done(&s);
	return 0;
}

/* ---- answers ---- */

static int put_flamebearer(struct connect_job *j, const struct stacks_query *q,
			   const struct stacks *s, bool diff)
{
	const struct pyroscope_render r = shown_as(&q->type);
	struct pyroscope_flame f;

	if (api_stacks_flame(j, s, diff, &f))
		return -EINVAL;
	pyroscope_put_flamebearer(&j->out, &f, &r);
	pyroscope_flame_done(&f);
	return 0;
}

static int put_stacks(struct connect_job *j, const struct stacks_query *q)
{
	struct stacks s;
	int r;

	if (api_stacks_read(j, q, NULL, &s))
		return -EINVAL;
	if (q->format == STACKS_DOT) {
		j->q.content_type = DOT_TYPE;
		r = api_stacks_dot(j, q, &s, &j->out);
	} else {
		r = put_flamebearer(j, q, &s, false);
	}
	api_stacks_free(&s);
	if (r || q->format == STACKS_DOT)
		return r;
	r = add_timeline(j, q);
	buf_putc(&j->out, '}');
	return r;
}

static int render(struct connect_job *j)
{
	return api_stacks_run(j, put_stacks);
}

static int render_diff(struct connect_job *j)
{
	struct stacks_sides sides;
	struct stacks s;
	int r = api_stacks_parse_sides(j, j->request, &sides);

	if (r)
		return r;
	r = api_stacks_read(j, &sides.right, &sides.left, &s);
	if (!r) {
		r = put_flamebearer(j, &sides.right, &s, true);
		buf_putc(&j->out, '}');
		api_stacks_free(&s);
	}
	api_stacks_sides_done(&sides);
	return r;
}

static void make_render(struct query_job *q)
{
	struct connect_job *j = (struct connect_job *)q;
	struct field_error e = {0};

	if (api_render_request(q->call, &j->request, &e)) {
		api_connect_fail(q, CONNECT_INVALID_ARGUMENT, "%s: %s", e.path, e.reason);
		return;
	}
	buf_init(&j->out, QUERY_MAX_REPLY_BYTES);
	j->out.budget = &q->bytes->budget;
	if (json_object_get(j->request, "left") ? render_diff(j) : render(j)) {
		q->content_type = NULL; /* the error's */
		return;
	}
	if (j->out.failed)
		api_connect_fail(q, CONNECT_RESOURCE_EXHAUSTED,
				 "the answer is too large: ask for less");
	else
		api_query_answer(q, &j->out);
}

void api_handle_render(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct connect_job),
					       .make_reply = make_render,
					       .names = api_connect_names,
					       .done = api_connect_done};

	api_query_post(c, &kind);
}
