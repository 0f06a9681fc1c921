/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods of Pyroscope's API share: the selections of their requests. */
#include "hub/api/connect.h"

#include <stdlib.h>

#define MAX_PODS 10000 /* names of labels, each of pods and of pushed profiles */

static int take_pod(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	_cleanup_free_ char *tag = xasprintf("%s%s", c->tag, value);

	(void)n_samples;
	query_names_add(arg, tag);
	return 0;
}

/* The tags of the labels of pods, and of pushed profiles, that the caller may see. */
static int read_pods(struct connect_job *j, const struct selection *times)
{
	struct selection of[_EVENT_ALL];
	struct store_choice choices[2 * _EVENT_ALL];
	struct field_error e = {0};
	struct selection now = *times;
	size_t n = 0;
	int r = api_connect_limit(&j->q, &now);

	if (r)
		return r;
	PROFILE_EACH_EVENT (event) {
		of[n] = now;
		of[n].event = event;
		of[n].where = NULL;
		choices[2 * n] = (struct store_choice){POD_LABEL, &of[n], MAX_PODS};
		choices[2 * n + 1] = (struct store_choice){PUSHED_LABEL, &of[n], MAX_PODS};
		n++;
	}
	r = store_choices(j->q.store, &j->q.call->scope, choices, 2 * n, take_pod, &j->pods, &e);
	query_names_sort(&j->pods);
	j->has_pods = true;
	return r ? api_connect_store_failed(&j->q, r, &e) : 0;
}

/* Reads the tags of such labels, if the text may name one. */
static int need_pods(struct connect_job *j, const char *text, const struct selection *times)
{
	return j->has_pods || !pyroscope_names_kept_label(text) ? 0 : read_pods(j, times);
}

void api_pyroscope_forget_pods(struct connect_job *j)
{
	query_names_done(&j->pods);
	j->has_pods = false;
}

/* Takes start and end, which are milliseconds, as the seconds that they are in. */
static int take_times(struct connect_job *j, const json_t *request, struct selection *ret)
{
	int64_t start = json_int_at(request, "start", 0), end = json_int_at(request, "end", 0);

	if (start <= 0 || end <= 0 || end / 1000 > PYROSCOPE_MAX_TIME_S)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"start and end: expected Unix milliseconds");
	if (start > end)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "start is after end");
	ret->time_start_s = start / 1000;
	ret->time_end_s = end / 1000;
	return api_connect_limit(&j->q, ret);
}

/* The selection of one event. Takes ownership of where. */
static struct selection *selection_of(const struct selection *times, enum event event,
				      struct predicate *where)
{
	struct selection *s = xmemdup(times, sizeof(*times));

	s->event = event;
	s->where = where;
	query_send_queue_only(s);
	return s;
}

static struct predicate *nothing(void)
{
	return pyroscope_tag_in("", NULL, 0);
}

int api_pyroscope_select(struct connect_job *j, const json_t *request, struct selection **ret)
{
	const char *selector = json_str_at(request, "label_selector", "");
	struct selection times = {0};
	struct pyroscope_matchers m;
	struct field_error e;
	enum event event = 0;
	int known, r = take_times(j, request, &times);

	if (r)
		return r;
	known = pyroscope_type_parse(json_str_at(request, "profile_typeID", ""), &event, &e);
	if (known == -EINVAL)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "%s", e.reason);
	r = need_pods(j, selector, &times);
	if (r)
		return r;
	if (pyroscope_matchers_parse(&selector, 1, &j->pods, &m, &e))
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "%s", e.reason);
	if (known || !(m.event_mask & 1u << event))
		m.where = pyroscope_and(m.where, nothing());
	*ret = selection_of(&times, event, m.where);
	return 0;
}

/* The texts of a list. The caller frees it. */
static const char **texts_of(const json_t *list, size_t *ret_n)
{
	const char **texts = xcalloc(json_array_size(list) + 1, sizeof(*texts));

	for (*ret_n = 0; *ret_n < json_array_size(list); (*ret_n)++)
		texts[*ret_n] = json_string_value(json_array_get(list, *ret_n));
	return texts;
}

int api_pyroscope_select_all(struct connect_job *j, struct pyroscope_selections *ret)
{
	struct selection times = {0};
	struct pyroscope_matchers m;
	struct field_error e;
	size_t n;
	_cleanup_free_ const char **texts = texts_of(json_object_get(j->request, "matchers"), &n);
	int r = take_times(j, j->request, &times);

	for (size_t i = 0; !r && i < n; i++)
		r = need_pods(j, texts[i], &times);
	if (r)
		return r;
	*ret = (struct pyroscope_selections){0};
	/* the predicate has one owner, so the selectors are parsed for each event */
	PROFILE_EACH_EVENT (event) {
		if (pyroscope_matchers_parse(texts, n, &j->pods, &m, &e)) {
			api_pyroscope_selections_done(ret);
			return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "%s", e.reason);
		}
		if (m.event_mask & 1u << event)
			ret->of[event] = selection_of(&times, event, m.where);
		else
			pyroscope_matchers_done(&m);
	}
	return 0;
}

void api_pyroscope_narrow(struct pyroscope_narrowed *n, const struct selection *sel,
			  struct predicate *also)
{
	n->sel = *sel;
	n->children[0] = also;
	n->children[1] = sel->where;
	n->both = (struct predicate){.op = PRED_AND, .children = n->children, .n_children = 2};
	n->sel.where = sel->where ? &n->both : also;
}

int api_pyroscope_label(struct connect_job *j, const char *name, const struct selection *sel,
			struct pyroscope_label *ret)
{
	int r = need_pods(j, name, sel);

	*ret = (struct pyroscope_label){.name = name};
	if (!r && !pyroscope_is_private(name))
		pyroscope_label_find(name, &j->pods, ret);
	return r;
}

void api_pyroscope_selections_done(struct pyroscope_selections *s)
{
	for (enum event e = 0; e < _EVENT_ALL; e++)
		s->of[e] = store_selection_free(s->of[e]);
}
