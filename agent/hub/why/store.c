/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store knows about a selection without data. Each question is one that the API has, made
 * from the request's own body. Query worker.
 */
#include "hub/why/reasons.h"

#include <inttypes.h>
#include <stdlib.h>

#define VALUES_READ  10000 /* of a tag */
#define VALUES_SHOWN 3
#define VALUE_BYTES  100
#define TAGS_MAX     16			/* conditions on more tags are not looked at */
#define STEPS	     360		/* of a search for another time */
#define SEARCH_NS    (5 * NSEC_PER_SEC) /* time of one search */
#define FIRST_S	     3600		/* how far back the first search goes */

struct found { /* the values of a tag */
	uint64_t n_samples, of_event;
	json_t *values;
};
struct storing {
	struct store *store;
	const struct why_question *q;
	json_t *reasons;
	struct field_error *reterr;
};

/* ---- conditions ---- */

static bool has(const json_t *tags, const char *tag)
{
	const json_t *t;
	size_t i;

	json_array_foreach (tags, i, t)
		if (streq(json_string_value(t), tag))
			return true;
	return false;
}

/* Collects the tags of the filter that podflame stores. */
static void collect(json_t *tags, const struct predicate *p)
{
	const struct tag_info *t = p->tag ? query_tag_lookup(p->tag) : NULL;

	for (size_t i = 0; i < p->n_children; i++)
		collect(tags, p->children[i]);
	if (t && t->stored && json_array_size(tags) < TAGS_MAX && !has(tags, p->tag))
		json_array_append_new(tags, json_string(p->tag));
}

struct counting {
	const struct why_question *q;
	const struct choices_request *request;
	const struct store_choice *choices;
	struct found *found;
};

static int count(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct counting *k = arg;
	struct found *f = &k->found[c - k->choices];
	_cleanup_free_ char *shown = utf8_shorten(value, VALUE_BYTES);

	f->n_samples += n_samples;
	if (streq(value, profile_event_info(k->q->tracing.selection->event)->name))
		f->of_event = n_samples;
	if (json_array_size(f->values) < VALUES_SHOWN)
		json_array_append_new(f->values, json_string(shown));
	return 0;
}

/* Reads the values of the tags, each without the conditions on that tag. */
static int count_tags(struct storing *s, json_t *body, json_t *tags, struct found *ret)
{
	_cleanup_free_ char *text = NULL;
	struct choices_request request = {0};
	struct store_choice choices[TAGS_MAX + 2];
	struct counting k = {s->q, &request, choices, ret};
	int e;

	json_object_set(body, "tags", tags);
	json_object_set_new(body, "limit", json_integer(VALUES_READ));
	text = json_dumps(body, JSON_COMPACT);
	e = query_choices_parse(text, strlen(text), &request, s->reterr);
	if (e)
		return e;
	for (size_t i = 0; i < request.n_tags; i++) {
		struct selection *sel = request.tags[i].tracing.selection;

		sel->given_up = s->q->tracing.selection->given_up;
		ret[i].values = json_array();
		choices[i] = (struct store_choice){request.tags[i].tag, sel, VALUES_READ};
	}
	e = store_choices(s->store, choices, request.n_tags, count, &k, s->reterr);
	query_choices_request_done(&request);
	return e;
}

static void say_condition(struct storing *s, const char *tag, const struct found *f)
{
	const char *event = profile_event_info(s->q->tracing.selection->event)->name;
	json_t *r = why_add(s->reasons, "condition",
			    xasprintf("Nothing matches the condition on %s together with the "
				      "others. Without it, there are %" PRIu64 " samples of %s.",
				      tag, f->n_samples, event),
			    NULL);

	json_object_set_new(r, "tag", json_string(tag));
	json_object_set_new(r, "samples", json_integer((json_int_t)f->n_samples));
	json_object_set(r, "values", f->values);
}

/* No condition alone is the reason; n_samples: those without any condition. */
static void say_conditions(struct storing *s, uint64_t n_samples)
{
	const char *event = profile_event_info(s->q->tracing.selection->event)->name;
	json_t *r;

	if (!n_samples)
		return;
	r = why_add(s->reasons, "condition",
		    xasprintf("No condition alone is the reason. Without all of them, there are "
			      "%" PRIu64 " samples of %s.",
			      n_samples, event),
		    NULL);
	json_object_set_new(r, "samples", json_integer((json_int_t)n_samples));
}

static void say_other_events(struct storing *s, const struct found *f)
{
	const char *event = profile_event_info(s->q->tracing.selection->event)->name;
	json_t *r;

	if (f->of_event || !f->n_samples)
		return;
	r = why_add(s->reasons, "other_event",
		    xasprintf("For this selection other events have data, and %s has none.", event),
		    NULL);
	json_object_set(r, "events", f->values);
}

static int without_conditions(struct storing *s)
{
	_cleanup_json_ json_t *body = json_copy(s->q->body),
			      *tags = json_pack("[s]", "profile_event_type");
	struct found found = {0};
	int e;

	json_object_del(body, "tag_filter");
	json_object_del(body, "app_service");
	e = count_tags(s, body, tags, &found);
	if (!e)
		say_conditions(s, found.of_event);
	json_decref(found.values);
	return e;
}

static int conditions(struct storing *s)
{
	_cleanup_json_ json_t *tags = json_array(), *body = json_copy(s->q->body);
	struct found found[TAGS_MAX + 2] = {0};
	const struct predicate *where = s->q->tracing.selection->where;
	size_t n, n_said = 0;
	int e;

	if (where)
		collect(tags, where);
	if (*s->q->tracing.app_service && !has(tags, "app_service"))
		json_array_append_new(tags, json_string("app_service"));
	n = json_array_size(tags);
	json_array_append_new(tags, json_string("profile_event_type"));
	e = count_tags(s, body, tags, found);
	for (size_t i = 0; !e && i < n; i++)
		if (found[i].n_samples && ++n_said)
			say_condition(s, json_string_value(json_array_get(tags, i)), &found[i]);
	if (!e && n && !n_said)
		e = without_conditions(s);
	if (!e)
		say_other_events(s, &found[n]);
	for (size_t i = 0; i <= n; i++)
		json_decref(found[i].values);
	return e;
}

/* ---- times ---- */

/* Reads a series of the selection in [start_s, end_s] into ret. */
static int read_series(struct storing *s, int64_t start_s, int64_t end_s, uint32_t step_s,
		       struct store_series *ret)
{
	struct selection sel = *s->q->tracing.selection;

	sel.time_start_s = start_s;
	sel.time_end_s = end_s;
	sel.max_time_ns = SEARCH_NS;
	return store_series(s->store, &(struct series_request){&sel, step_s, NULL, 1}, ret,
			    s->reterr);
}

/* A step that makes at most STEPS steps, or a few more of very long ones. */
static uint32_t step_for(int64_t start_s, int64_t end_s)
{
	return (uint32_t)MIN((end_s - start_s) / STEPS + 1, (int64_t)INT32_MAX);
}

/* The first or last step with a value; -1: none. */
static int64_t step_with_data(const struct store_series *x, bool last)
{
	int64_t found = -1;

	for (size_t i = 0; x->n_groups && i < x->n_steps && (last || found < 0); i++)
		if (x->groups[0].values[i])
			found = (int64_t)i;
	return found;
}

struct stretch { /* of time, with data; end_s 0: none */
	int64_t start_s, end_s;
};

/* Finds the first or last step of [start_s, end_s] that has data. */
static int search(struct storing *s, int64_t start_s, int64_t end_s, bool last, struct stretch *ret)
{
	uint32_t step_s = step_for(start_s, end_s);
	struct store_series x = {0};
	int64_t step;
	int e = read_series(s, start_s, end_s, step_s, &x);

	if (e)
		return e;
	step = step_with_data(&x, last);
	if (step >= 0)
		*ret = (struct stretch){start_s + step * step_s,
					MIN(start_s + (step + 1) * step_s - 1, end_s)};
	store_series_done(&x);
	return 0;
}

/* Offers a time with that data, which is not shorter than the question's. */
static void say_time(struct storing *s, const struct stretch *data, bool before)
{
	const struct selection *sel = s->q->tracing.selection;
	int64_t length_s = sel->time_end_s - sel->time_start_s;
	int64_t start_s = before ? MIN(data->start_s, MAX(data->end_s - length_s, (int64_t)1))
				 : data->start_s;
	int64_t end_s = before ? data->end_s : MAX(data->end_s, data->start_s + length_s);
	char when[32];
	json_t *r;

	time_format((uint64_t)(before ? data->end_s : data->start_s) * NSEC_PER_SEC, when);
	r = why_add(s->reasons, "other_time",
		    before ? xasprintf("The last data before this time is from about %s.", when)
			   : xasprintf("The first data after this time is from about %s.", when),
		    NULL);
	json_object_set_new(r, "time_start", json_integer(start_s));
	json_object_set_new(r, "time_end", json_integer(end_s));
}

/* Searches back in longer and longer stretches: the newest data is probably near. */
static int before(struct storing *s)
{
	int64_t end_s = s->q->tracing.selection->time_start_s - 1, oldest_s;
	struct stretch data = {0};
	struct store_stats stats;
	int e = 0;

	store_stats(s->store, &stats);
	oldest_s = (int64_t)(stats.oldest_ns / NSEC_PER_SEC); /* 0: not known */
	for (int64_t back_s = FIRST_S; !e && !data.end_s && end_s >= oldest_s; back_s *= 8) {
		e = search(s, MAX(oldest_s, end_s - back_s), end_s, true, &data);
		if (end_s - back_s <= oldest_s)
			break;
	}
	if (data.end_s)
		say_time(s, &data, true);
	return e;
}

static int after(struct storing *s, int64_t now_s)
{
	int64_t start_s = s->q->tracing.selection->time_end_s + 1;
	struct stretch data = {0};
	int e = start_s < now_s ? search(s, start_s, now_s, false, &data) : 0;

	if (data.end_s)
		say_time(s, &data, false);
	return e;
}

/* ---- losses ---- */

static void say_losses(struct storing *s, const struct store_series *x)
{
	json_t *losses = json_array(), *r;

	for (size_t i = 0; i < x->n_losses; i++) {
		uint64_t n = 0, ns = 0;

		for (size_t k = 0; k < x->n_steps; k++) {
			n += x->losses[i].n_samples[k];
			ns += x->losses[i].time_ns[k];
		}
		json_array_append_new(losses, json_pack("{s:s, s:I, s:I}", "reason",
							x->losses[i].reason, "samples",
							(json_int_t)n, "time_ns", (json_int_t)ns));
	}
	r = why_add(s->reasons, "lost",
		    xstrdup("Data of this time was lost, here or elsewhere on the same nodes."),
		    NULL);
	json_object_set_new(r, "losses", losses);
}

static int losses(struct storing *s)
{
	const struct selection *sel = s->q->tracing.selection;
	struct store_series x = {0};
	int e = read_series(s, sel->time_start_s, sel->time_end_s,
			    step_for(sel->time_start_s, sel->time_end_s), &x);

	if (e)
		return e;
	if (x.n_losses)
		say_losses(s, &x);
	store_series_done(&x);
	return 0;
}

/* ---- all ---- */

int why_of_store(struct store *store, const struct why_question *q, int64_t now_s, json_t **ret,
		 struct field_error *reterr)
{
	struct storing s = {store, q, json_array(), reterr};
	int e;

	for (size_t i = 0; i < q->tracing.n_notes; i++)
		why_add(s.reasons, "condition", xstrdup(q->tracing.notes[i]), NULL);
	e = conditions(&s);
	if (!e)
		e = losses(&s);
	if (!e)
		e = before(&s);
	if (!e)
		e = after(&s, now_s);
	/* what was found until the time was over is an answer, too */
	if (e && e != -ETIME) {
		json_decref(s.reasons);
		return e;
	}
	*ret = s.reasons;
	return 0;
}
