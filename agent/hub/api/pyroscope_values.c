/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which values labels have, alone and together. The store gives each read the time of its
 * selection, so each read here has what is left of the call's: api_connect_limit().
 */
#include "hub/api/connect.h"

#include <stdlib.h>

#define MAX_READS 200 /* of the store, for the combinations of one call */

/* Values of several choices, as one list. */
struct values {
	struct query_names *list;
	const struct store_choice *of; /* the choice that is read */
	size_t n;		       /* its values so far */
	bool more;		       /* than the limit; a choice asks for one more */
};

static int take_value(const struct store_choice *c, const char *value, uint64_t n_samples,
		      void *arg)
{
	struct values *v = arg;

	(void)n_samples;
	v->n = v->of == c ? v->n + 1 : 1;
	v->of = c;
	if (v->n <= PYROSCOPE_MAX_VALUES)
		query_names_add(v->list, value);
	else
		v->more = true;
	return 0;
}

static int read_choices(struct connect_job *j, const struct store_choice *choices, size_t n,
			store_choice_fn *fn, void *arg)
{
	struct field_error e = {0};
	int r = store_choices(j->q.store, &j->q.call->scope, choices, n, fn, arg, &e);

	return r ? api_connect_store_failed(&j->q, r, &e) : 0;
}

static int read_values(struct connect_job *j, const char *tag, const struct selection *sel,
		       struct query_names *ret)
{
	struct selection now = *sel;
	const struct store_choice choice = {tag, &now, PYROSCOPE_MAX_VALUES + 1};
	struct values v = {.list = ret};
	int r = api_connect_limit(&j->q, &now);

	if (!r)
		r = read_choices(j, &choice, 1, take_value, &v);
	j->q.n_rows += v.n;
	if (!r && v.more)
		r = api_connect_fail(&j->q, CONNECT_RESOURCE_EXHAUSTED,
				     "there are more than %d values: ask for less time, or add "
				     "matchers",
				     PYROSCOPE_MAX_VALUES);
	return r;
}

/* ---- events ---- */

int api_pyroscope_events(struct connect_job *j, const struct selection *sel, unsigned *ret_mask)
{
	struct query_names names = {0};
	int r = read_values(j, "profile_event_type", sel, &names);
	enum event e;

	*ret_mask = 0;
	for (size_t i = 0; i < names.n; i++)
		if (profile_event_from_name(names.names[i], &e) == 0)
			*ret_mask |= 1u << e;
	query_names_done(&names);
	return r;
}

int api_pyroscope_keep_events(struct connect_job *j, struct pyroscope_selections *s)
{
	const struct selection *any = NULL;
	unsigned mask = 0;
	int r;

	/* rdma has a condition that is only its own */
	for (enum event e = 0; e < _EVENT_ALL; e++)
		if (s->of[e] && (!any || e != EVENT_RDMA))
			any = s->of[e];
	r = any ? api_pyroscope_events(j, any, &mask) : 0;
	for (enum event e = 0; !r && e < _EVENT_ALL; e++)
		if (!(mask & 1u << e))
			s->of[e] = store_selection_free(s->of[e]);
	return r;
}

/* ---- one label ---- */

struct having {
	const struct store_choice *choices;
	const size_t *label_of; /* by choice */
	bool *has;		/* by label */
};

static int take_any(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct having *h = arg;

	(void)value;
	(void)n_samples;
	h->has[h->label_of[c - h->choices]] = true;
	return 0;
}

/* Whether profiles of the event may have the tag. */
static bool is_of_event(const char *tag, enum event e)
{
	const struct tag_info *t = query_tag_lookup(tag);

	return !t || !t->event_mask || t->event_mask & 1u << e;
}

int api_pyroscope_has_values(struct connect_job *j, const struct selection *sel,
			     const struct pyroscope_label *labels, size_t n, bool *ret)
{
	struct store_choice *choices = xcalloc(2 * n + 1, sizeof(*choices));
	size_t *label_of = xcalloc(2 * n + 1, sizeof(*label_of)), n_choices = 0;
	struct having h = {choices, label_of, ret};
	struct selection now = *sel;
	int r = api_connect_limit(&j->q, &now);

	memset(ret, 0, n * sizeof(*ret));
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; labels[i].tags[k]; k++) {
			/* the store would read all samples to find no value */
			if (!is_of_event(labels[i].tags[k], sel->event))
				continue;
			label_of[n_choices] = i;
			choices[n_choices++] = (struct store_choice){labels[i].tags[k], &now, 0};
		}
	if (!r && n_choices)
		r = read_choices(j, choices, n_choices, take_any, &h);
	free(choices);
	free(label_of);
	return r;
}

/* Where the tag is not there. The caller frees it. */
static struct predicate *without(const char *tag)
{
	return pyroscope_label_is(&(struct pyroscope_label){.tags = {tag}}, NULL);
}

int api_pyroscope_values(struct connect_job *j, const struct selection *sel,
			 const struct pyroscope_label *label, struct query_names *ret)
{
	struct pyroscope_narrowed rest;
	struct predicate *missing;
	int r = label->tags[0] ? read_values(j, label->tags[0], sel, ret) : 0;

	if (!r && label->tags[0] && label->tags[1]) {
		missing = without(label->tags[0]);
		api_pyroscope_narrow(&rest, sel, missing);
		r = read_values(j, label->tags[1], &rest.sel, ret);
		store_predicate_free(missing);
	}
	query_names_sort(ret);
	return r;
}

/* ---- labels together ---- */

static bool is_of_samples(const struct pyroscope_label *l)
{
	for (size_t i = 0; l->tags[i]; i++)
		if (store_is_tag_of_samples(l->tags[i]))
			return true;
	return false;
}

void api_pyroscope_joint_init(struct pyroscope_joint *j, const struct pyroscope_label *labels,
			      size_t n)
{
	struct store_joined items[PYROSCOPE_MAX_LABELS];

	_Static_assert(PYROSCOPE_MAX_LABELS <= STORE_MAX_JOINED, "a joint tag has room for all");
	*j = (struct pyroscope_joint){0};
	for (size_t i = 0; i < n; i++) {
		if (!labels[i].tags[0] || is_of_samples(&labels[i]))
			continue;
		items[j->n] = (struct store_joined){labels[i].tags[0], labels[i].tags[1]};
		j->at[j->n++] = i;
	}
	j->tag = j->n ? store_join(items, j->n) : NULL;
}

void api_pyroscope_joint_done(struct pyroscope_joint *j)
{
	free(j->tag);
}

bool api_pyroscope_joint_put(const struct pyroscope_joint *j, const char *value, char **values)
{
	char *own[PYROSCOPE_MAX_LABELS];

	if (store_joined_values(value, j->n, own))
		return false;
	for (size_t i = 0; i < j->n; i++)
		values[j->at[i]] = own[i];
	return true;
}

struct combining {
	struct connect_job *job;
	const struct pyroscope_label *labels;
	size_t n;
	struct pyroscope_joint joint;
	char *values[PYROSCOPE_MAX_LABELS]; /* those of the joint tag are owned */
	pyroscope_combination_fn *fn;
	void *arg;
};

int api_pyroscope_count_read(struct connect_job *j)
{
	if (++j->n_reads <= MAX_READS)
		return 0;
	return api_connect_fail(&j->q, CONNECT_RESOURCE_EXHAUSTED,
				"these labels have too many combinations of values: ask for fewer "
				"labels, or add matchers");
}

static int combine(struct combining *c, size_t i, const struct selection *sel);

/* Goes on with the profiles that have this value of label i. */
static int combine_with(struct combining *c, size_t i, const struct selection *sel, char *value)
{
	struct predicate *is = pyroscope_label_is(&c->labels[i], value);
	struct pyroscope_narrowed narrowed;
	unsigned mask = 1;
	int r = 0;

	api_pyroscope_narrow(&narrowed, sel, is);
	if (!value) { /* unlike the values, this may be of no profile */
		r = api_pyroscope_count_read(c->job);
		if (!r)
			r = api_pyroscope_events(c->job, &narrowed.sel, &mask);
		mask &= 1u << sel->event;
	}
	c->values[i] = value;
	if (!r && mask)
		r = combine(c, i + 1, &narrowed.sel);
	store_predicate_free(is);
	return r;
}

/* Goes on with label i, and those behind it, unless they are part of the joint tag. */
static int combine(struct combining *c, size_t i, const struct selection *sel)
{
	struct query_names values = {0};
	struct selection now = *sel;
	int r;

	while (i < c->n && (!c->labels[i].tags[0] || !is_of_samples(&c->labels[i])))
		i++;
	if (i == c->n) {
		r = api_connect_limit(&c->job->q, &now);
		return r ? r : c->fn((const char *const *)c->values, &now, c->arg);
	}
	r = api_pyroscope_count_read(c->job);
	if (!r)
		r = api_pyroscope_values(c->job, sel, &c->labels[i], &values);
	for (size_t k = 0; !r && k < values.n; k++)
		r = combine_with(c, i, sel, values.names[k]);
	if (!r)
		r = combine_with(c, i, sel, NULL);
	query_names_done(&values);
	return r;
}

/* Goes on with the profiles that have these values of the labels of the joint tag. */
static int combine_joined(struct combining *c, const struct selection *sel)
{
	struct predicate *list[PYROSCOPE_MAX_LABELS];
	struct predicate all = {.op = PRED_AND, .children = list, .n_children = c->joint.n};
	struct pyroscope_narrowed narrowed;
	int r;

	for (size_t i = 0; i < c->joint.n; i++)
		list[i] = pyroscope_label_is(&c->labels[c->joint.at[i]], c->values[c->joint.at[i]]);
	api_pyroscope_narrow(&narrowed, sel, &all);
	r = combine(c, 0, &narrowed.sel);
	for (size_t i = 0; i < c->joint.n; i++)
		store_predicate_free(list[i]);
	return r;
}

/* The store tells the values of the joint tag in one read. */
static int combine_all(struct combining *c, const struct selection *sel)
{
	struct query_names values = {0};
	int r;

	if (!c->joint.n)
		return combine(c, 0, sel);
	r = read_values(c->job, c->joint.tag, sel, &values);
	for (size_t k = 0; !r && k < values.n; k++) {
		if (!api_pyroscope_joint_put(&c->joint, values.names[k], c->values))
			continue;
		r = combine_joined(c, sel);
		for (size_t i = 0; i < c->joint.n; i++)
			free(TAKE_PTR(c->values[c->joint.at[i]]));
	}
	query_names_done(&values);
	return r;
}

int api_pyroscope_combinations(struct connect_job *j, const struct selection *sel,
			       const struct pyroscope_label *labels, size_t n,
			       pyroscope_combination_fn *fn, void *arg)
{
	struct combining c = {.job = j, .labels = labels, .n = n, .fn = fn, .arg = arg};
	int r;

	assert_se(n <= PYROSCOPE_MAX_LABELS);
	api_pyroscope_joint_init(&c.joint, labels, n);
	r = combine_all(&c, sel);
	api_pyroscope_joint_done(&c.joint);
	return r;
}
