/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store knows about a selection without data. Each question is one that the API has, made
 * from the request's own body. Query worker.
 */
#include "hub/why/reasons.h"

#include <inttypes.h>
#include <stdlib.h>

#define VALUES_READ  100 /* of a tag */
#define VALUES_SHOWN 3
#define VALUE_BYTES  100		 /* a longer value is not shown */
#define TAGS_MAX     16			 /* conditions on more tags are not looked at */
#define STEPS	     360		 /* of a search for another time */
#define SEARCH_NS    (5 * NSEC_PER_SEC)	 /* time of one search */
#define COUNT_NS     (20 * NSEC_PER_SEC) /* time for all conditions */
#define FIRST_S	     3600		 /* how far back the first search goes */

static const char event_tag[] = "profile_event_type";

struct found {		   /* without the conditions on a tag */
	uint64_t of_event; /* samples of the question's event */
	json_t *values;	   /* of the tag, those with most samples */
};
struct storing {
	struct store *store;
	const struct why_question *q;
	int64_t now_s;
	json_t *reasons;
	bool has_data; /* the selection has data, unlike before */
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

/* Collects the tags of the filter that podflame stores. The event's tag has a choice anyway. */
static void collect(json_t *tags, const struct predicate *p)
{
	const struct tag_info *t = p->tag ? query_tag_lookup(p->tag) : NULL;

	for (size_t i = 0; i < p->n_children; i++)
		collect(tags, p->children[i]);
	if (t && t->stored && !streq(p->tag, event_tag) && !has(tags, p->tag))
		json_array_append_new(tags, json_string(p->tag));
}

/* For each tag two choices: its own one, and that of events, which counts all samples. */
#define CHOICES_MAX (2 * (TAGS_MAX + 1))
struct counting {
	const char *event;
	const struct store_choice *choices;
	struct found *found;
};

static int count(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct counting *k = arg;
	size_t i = (size_t)(c - k->choices);
	struct found *f = &k->found[i / 2];

	if (i % 2 && streq(value, k->event))
		f->of_event = n_samples;
	/* a part of a value matches nothing */
	if (i % 2 == 0 && json_array_size(f->values) < VALUES_SHOWN && strlen(value) <= VALUE_BYTES)
		json_array_append_new(f->values, json_string(value));
	return 0;
}

static const char *event_of(const struct storing *s)
{
	return profile_event_info(s->q->tracing.selection->event)->name;
}

/*
 * Reads the values of the tags and counts the samples, for each tag without the conditions on it.
 * body is changed.
 */
static int count_tags(struct storing *s, json_t *body, json_t *tags, struct found *ret)
{
	_cleanup_free_ char *text = NULL;
	struct choices_request request = {0};
	struct store_choice choices[CHOICES_MAX];
	struct counting k = {event_of(s), choices, ret};
	int e;

	json_object_set(body, "tags", tags);
	json_object_set_new(body, "limit", json_integer(VALUES_READ));
	text = json_dumps(body, JSON_COMPACT);
	e = query_choices_parse(text, strlen(text), &request, s->reterr);
	if (e)
		return e;
	for (size_t i = 0; i < request.n_tags; i++) {
		struct selection *sel = request.tags[i].tracing.selection;

		sel->with_total = false; /* as in the question */
		sel->given_up = s->q->tracing.selection->given_up;
		sel->max_time_ns = COUNT_NS;
		ret[i].values = json_array();
		choices[2 * i] = (struct store_choice){request.tags[i].tag, sel, VALUES_READ};
		choices[2 * i + 1] = (struct store_choice){event_tag, sel, VALUES_READ};
	}
	e = store_choices(s->store, s->q->scope, choices, 2 * request.n_tags, count, &k, s->reterr);
	query_choices_request_done(&request);
	return e;
}

static void say_condition(struct storing *s, const char *tag, const struct found *f)
{
	json_t *r = why_add(s->reasons, "condition",
			    xasprintf("Nothing matches the condition on %s together with the "
				      "others. Without it, there are %" PRIu64 " samples of %s.",
				      tag, f->of_event, event_of(s)),
			    NULL);

	json_object_set_new(r, "tag", json_string(tag));
	json_object_set_new(r, "samples", json_integer((json_int_t)f->of_event));
	json_object_set(r, "values", f->values);
}

/* all: each condition was looked at, and none alone is the reason. */
static void say_conditions(struct storing *s, bool all, uint64_t n_samples)
{
	json_t *r;

	if (!n_samples)
		return;
	r = why_add(s->reasons, "condition",
		    xasprintf("%s, there are %" PRIu64 " samples of %s.",
			      all ? "No condition alone is the reason. Without all of them"
				  : "Without all conditions",
			      n_samples, event_of(s)),
		    NULL);
	json_object_set_new(r, "samples", json_integer((json_int_t)n_samples));
}

static void say_other_events(struct storing *s, const struct found *f)
{
	json_t *r;

	if (f->of_event || !json_array_size(f->values))
		return;
	r = why_add(s->reasons, "other_event",
		    xasprintf("For this selection other events have data, and %s has none.",
			      event_of(s)),
		    NULL);
	json_object_set(r, "events", f->values);
}

static int without_conditions(struct storing *s, bool all)
{
	_cleanup_json_ json_t *body = json_copy(s->q->body), *tags = json_pack("[s]", event_tag);
	struct found found = {0};
	int e;

	json_object_del(body, "tag_filter");
	json_object_del(body, "app_service");
	e = count_tags(s, body, tags, &found);
	if (!e)
		say_conditions(s, all, found.of_event);
	json_decref(found.values);
	return e;
}

/* The tags with conditions. *ret_all: they are all of them, and each is stored. */
static json_t *conditioned(const struct storing *s, bool *ret_all)
{
	const struct tracing_request *t = &s->q->tracing;
	json_t *tags = json_array();

	if (t->selection->where)
		collect(tags, t->selection->where);
	if (*t->app_service && !has(tags, "app_service"))
		json_array_append_new(tags, json_string("app_service"));
	*ret_all = json_array_size(tags) <= TAGS_MAX && !t->n_notes;
	while (json_array_size(tags) > TAGS_MAX)
		json_array_remove(tags, json_array_size(tags) - 1);
	return tags;
}

static int conditions(struct storing *s)
{
	bool all;
	_cleanup_json_ json_t *tags = conditioned(s, &all), *body = json_copy(s->q->body);
	struct found found[TAGS_MAX + 1] = {0};
	size_t n = json_array_size(tags), n_said = 0;
	int e;

	json_array_append_new(tags, json_string(event_tag));
	e = count_tags(s, body, tags, found);
	for (size_t i = 0; !e && i < n; i++)
		if (found[i].of_event && ++n_said)
			say_condition(s, json_string_value(json_array_get(tags, i)), &found[i]);
	if (!e)
		say_other_events(s, &found[n]);
	if (!e && n && !n_said)
		e = without_conditions(s, all);
	for (size_t i = 0; i <= n; i++)
		json_decref(found[i].values);
	return e;
}

/* ---- data that came since ---- */

static int count_own(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	struct storing *s = arg;

	(void)c;
	(void)n_samples;
	s->has_data = s->has_data || streq(value, event_of(s));
	return 0;
}

static int data(struct storing *s)
{
	struct selection sel = *s->q->tracing.selection;
	const struct store_choice own = {event_tag, &sel, VALUES_READ};
	int e;

	sel.max_time_ns = SEARCH_NS;
	e = store_choices(s->store, s->q->scope, &own, 1, count_own, s, s->reterr);
	if (s->has_data)
		why_add(s->reasons, "has_data",
			xasprintf("This selection has data of %s now. Ask for it again.",
				  event_of(s)),
			NULL);
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
	return store_series(s->store, s->q->scope, &(struct series_request){&sel, step_s, NULL, 1},
			    ret, s->reterr);
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
	/* 0: not known. That of all namespaces is for those who may see them */
	oldest_s = store_scope_has_own(s->q->scope) ? (int64_t)(stats.oldest_ns / NSEC_PER_SEC) : 0;
	for (int64_t back_s = FIRST_S; !e && !data.end_s && end_s >= oldest_s; back_s *= 8) {
		e = search(s, MAX(oldest_s, end_s - back_s), end_s, true, &data);
		if (end_s - back_s <= oldest_s)
			break;
	}
	if (data.end_s)
		say_time(s, &data, true);
	return e;
}

static int after(struct storing *s)
{
	int64_t start_s = s->q->tracing.selection->time_end_s + 1;
	struct stretch data = {0};
	int e = start_s < s->now_s ? search(s, start_s, s->now_s, false, &data) : 0;

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

/* Whether the request itself, not its filter, excludes everything: the notes say why. */
static bool excludes_all(const struct tracing_request *t)
{
	const struct predicate *where = t->selection->where;

	return where && where->op == PRED_FALSE && t->n_notes;
}

/* Takes each step. What is found without those that take too long is an answer, too. */
static int take_steps(struct storing *s)
{
	static int (*const steps[])(struct storing *) = {data, conditions, losses, before, after};
	bool finished = true;

	for (size_t i = 0; i < ARRAY_SIZE(steps) && !s->has_data; i++) {
		int e = steps[i](s);

		if (e && e != -ETIME && e != -EFBIG)
			return e;
		finished = finished && !e;
	}
	if (!finished && !s->has_data)
		why_add(s->reasons, "not_finished",
			xstrdup("The hub has not searched for all reasons, because that takes too "
				"long or too much memory. Ask for less time or name the process."),
			NULL);
	return 0;
}

int why_of_store(struct store *store, const struct why_question *q, int64_t now_s, json_t **ret,
		 struct field_error *reterr)
{
	struct storing s = {
		.store = store, .q = q, .now_s = now_s, .reasons = json_array(), .reterr = reterr};
	int e;

	for (size_t i = 0; i < q->tracing.n_notes; i++)
		why_add(s.reasons, "condition", xstrdup(q->tracing.notes[i]), NULL);
	e = excludes_all(&q->tracing) ? 0 : take_steps(&s);
	if (e) {
		json_decref(s.reasons);
		return e;
	}
	*ret = s.reasons;
	return 0;
}
