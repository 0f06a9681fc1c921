/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of Pyroscope's API whose answers are made of stacks: flame graphs, trees, call graphs and
 * pprof of a selection, and the difference of two. What cannot be served is `unimplemented`.
 */
#include "hub/api/pyroscope_stacks.h"

#include <ctype.h>
#include <stdlib.h>

#define DEFAULT_NODES 8192    /* as Pyroscope */
#define MAX_NODES     1048576 /* of one answer */
#define TRACE_DIGITS  32
#define SPAN_DIGITS   16
#define MAX_IDS	      1000 /* spans or traces of one request */

/* ---- requests ---- */

static int unimplemented(struct connect_job *j, const char *what)
{
	return api_connect_fail(&j->q, CONNECT_UNIMPLEMENTED, "this hub has no %s", what);
}

static bool has(const json_t *request, const char *field)
{
	const json_t *value = json_object_get(request, field);

	return json_is_array(value) ? json_array_size(value) : json_object_size(value);
}

/* What the API has and this hub has not, so that nobody takes an answer for another one. */
static int refuse_unknown(struct connect_job *j, const json_t *request)
{
	const json_t *selector = json_object_get(request, "stack_trace_selector");

	if (has(request, "async"))
		return unimplemented(j, "asynchronous queries (async)");
	if (has(request, "group_by")) /* of /pyroscope/render */
		return unimplemented(j, "groups of stacks (groupBy)");
	if (has(request, "profile_id_selector"))
		return unimplemented(j, "selection by the id of a profile (profile_id_selector)");
	if (has(selector, "go_pgo"))
		return unimplemented(j, "profiles for Go's PGO (go_pgo)");
	if (has(selector, "frame_filter"))
		return unimplemented(j, "filters of frames (frame_filter)");
	return 0;
}

static int take_format(struct connect_job *j, const json_t *request, struct stacks_query *ret)
{
	int64_t format = json_int_at(request, "format", STACKS_FLAME_GRAPH);

	if (format < 0 || format > STACKS_PPROF)
		return unimplemented(j, "such format");
	ret->format = format ? (enum stacks_format)format : STACKS_FLAME_GRAPH;
	return 0;
}

static int take_max_nodes(struct connect_job *j, const json_t *request, struct stacks_query *ret)
{
	int64_t n = json_int_at(request, "max_nodes", 0);

	if (n < 0 || n > MAX_NODES)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"max_nodes: expected at most %d", MAX_NODES);
	ret->cut.max_nodes = n ? (size_t)n : DEFAULT_NODES;
	return 0;
}

static int take_call_site(struct connect_job *j, const json_t *request, struct stacks_query *ret)
{
	const json_t *sites =
		json_object_get(json_object_get(request, "stack_trace_selector"), "call_site");
	size_t n = json_array_size(sites);

	if (n > STACK_MAX_FRAMES)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"call_site: more than %d locations", STACK_MAX_FRAMES);
	ret->call_site = xcalloc(n + 1, sizeof(*ret->call_site));
	for (size_t i = 0; i < n; i++)
		ret->call_site[i] = json_str_at(json_array_get(sites, i), "name", "");
	ret->cut.call_site = ret->call_site;
	ret->cut.n_call_site = n;
	return 0;
}

/* Whether a text is an id of so many hexadecimal digits, which are stored in lower case. */
static bool lower_id(const char *text, size_t n_digits, char *ret)
{
	if (strlen(text) != n_digits)
		return false;
	for (size_t i = 0; i < n_digits; i++) {
		if (!isxdigit((unsigned char)text[i]))
			return false;
		ret[i] = (char)tolower((unsigned char)text[i]);
	}
	ret[n_digits] = '\0';
	return true;
}

/* Restricts the selection to samples of these spans or traces. */
static int take_ids(struct connect_job *j, const json_t *request, const char *field,
		    const char *tag, size_t n_digits, struct stacks_query *ret)
{
	const json_t *list = json_object_get(request, field);
	size_t n = json_array_size(list);
	char ids[MAX_IDS][TRACE_DIGITS + 1];
	const char *values[MAX_IDS];

	if (!n)
		return 0;
	if (n > MAX_IDS)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT, "%s: more than %d ids",
					field, MAX_IDS);
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i)) ?: "";

		if (!lower_id(text, n_digits, ids[i]))
			return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
						"%s: '%.100s' is no id of %zu hexadecimal digits",
						field, text, n_digits);
		values[i] = ids[i];
	}
	ret->selection->where =
		pyroscope_and(ret->selection->where, pyroscope_tag_in(tag, values, n));
	return 0;
}

static int take_calls(struct connect_job *j, const json_t *request, struct stacks_query *ret)
{
	if (has(request, "trace_id_selector") && has(request, "span_selector"))
		return api_connect_fail(
			&j->q, CONNECT_INVALID_ARGUMENT,
			"trace_id_selector and span_selector: expected one of them");
	if (take_ids(j, request, "trace_id_selector", "trace_id", TRACE_DIGITS, ret))
		return -EINVAL;
	return take_ids(j, request, "span_selector", "profile_id", SPAN_DIGITS, ret);
}

int api_stacks_parse(struct connect_job *j, const json_t *request, struct stacks_query *ret)
{
	*ret = (struct stacks_query){0};
	if (refuse_unknown(j, request) || take_format(j, request, ret) ||
	    take_max_nodes(j, request, ret) || take_call_site(j, request, ret) ||
	    api_pyroscope_select(j, request, &ret->selection) || take_calls(j, request, ret)) {
		api_stacks_done(ret);
		return -EINVAL;
	}
	pyroscope_type_of(ret->selection->event, &ret->type);
	return 0;
}

void api_stacks_done(struct stacks_query *s)
{
	s->selection = store_selection_free(s->selection);
	free(TAKE_PTR(s->call_site));
}

static bool is_same_site(const struct query_cut *a, const struct query_cut *b)
{
	bool same = a->n_call_site == b->n_call_site;

	for (size_t i = 0; same && i < a->n_call_site; i++)
		same = streq(a->call_site[i], b->call_site[i]);
	return same;
}

static int check_sides(struct connect_job *j, const struct stacks_sides *s)
{
	if (s->left.selection->event != s->right.selection->event)
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"left and right have different types of profiles");
	if (!is_same_site(&s->left.cut, &s->right.cut))
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"left and right have different call sites");
	if (s->left.format != STACKS_FLAME_GRAPH || s->right.format != STACKS_FLAME_GRAPH)
		return unimplemented(j, "difference in such format");
	return 0;
}

int api_stacks_parse_sides(struct connect_job *j, const json_t *request, struct stacks_sides *ret)
{
	int r;

	*ret = (struct stacks_sides){0};
	r = api_stacks_parse(j, json_object_get(request, "left"), &ret->left);
	api_pyroscope_forget_pods(j); /* the right side has another time */
	if (r || api_stacks_parse(j, json_object_get(request, "right"), &ret->right) ||
	    check_sides(j, ret)) {
		api_stacks_sides_done(ret);
		return -EINVAL;
	}
	ret->right.cut.max_nodes = MAX(ret->left.cut.max_nodes, ret->right.cut.max_nodes);
	return 0;
}

void api_stacks_sides_done(struct stacks_sides *s)
{
	api_stacks_done(&s->left);
	api_stacks_done(&s->right);
}

/* ---- stacks ---- */

static int read_rows(struct connect_job *j, const struct stacks_query *s, struct stacks *to)
{
	struct store_summary summary = {0};
	struct field_error e = {0};
	int r = api_connect_limit(&j->q, s->selection);

	if (r)
		return r;
	r = api_query_tree(&j->q, s->selection, -1, to->tree, &summary, &e);
	j->q.n_rows += summary.n_rows;
	to->lacks_samples |= summary.n_losses > 0;
	to->lacks_stacks |= summary.truncated;
	store_summary_done(&summary);
	return r ? api_connect_store_failed(&j->q, r, &e) : 0;
}

static int too_large(struct connect_job *j)
{
	return api_connect_fail(&j->q, CONNECT_RESOURCE_EXHAUSTED,
				"the answer is too large: ask for less");
}

int api_stacks_read(struct connect_job *j, const struct stacks_query *s,
		    const struct stacks_query *before, struct stacks *ret)
{
	/* a call graph chooses its functions itself */
	const struct query_cut cut = {s->format == STACKS_DOT ? MAX_NODES : s->cut.max_nodes,
				      s->cut.call_site, s->cut.n_call_site};
	int r;

	*ret = (struct stacks){.tree = query_tree_new(&(struct tree_form){
				       .only_frames = true, .max_nodes = QUERY_MAX_COLUMNS})};
	r = read_rows(j, s, ret);
	if (!r && before) {
		query_tree_before(ret->tree);
		r = read_rows(j, before, ret);
	}
	if (!r && query_nodes_of(ret->tree, &cut, j->out.budget, &ret->nodes))
		r = too_large(j);
	if (r) {
		api_stacks_free(ret);
		return r;
	}
	pyroscope_scale_nodes(&ret->nodes, (unsigned)s->type.factor);
	api_query_left_out(&j->q, ret->lacks_samples, ret->lacks_stacks);
	return 0;
}

void api_stacks_free(struct stacks *s)
{
	query_nodes_done(&s->nodes);
	s->tree = query_tree_free(s->tree);
}

int api_stacks_flame(struct connect_job *j, const struct stacks *s, bool diff,
		     struct pyroscope_flame *ret)
{
	if (!pyroscope_flame_of(&s->nodes, diff, j->out.budget, ret))
		return 0;
	pyroscope_flame_done(ret);
	return too_large(j);
}

int api_stacks_dot(struct connect_job *j, const struct stacks_query *q, const struct stacks *s,
		   struct buf *out)
{
	if (pyroscope_put_dot(out, &s->nodes, q->cut.max_nodes, q->type.parts[2]))
		return too_large(j);
	return 0;
}

/* ---- answers ---- */

static int put_flame(struct connect_job *j, const struct stacks *s, bool diff)
{
	struct pyroscope_flame f;

	if (api_stacks_flame(j, s, diff, &f))
		return -EINVAL;
	pyroscope_put_flame(&j->answer, &f);
	pyroscope_flame_done(&f);
	return 0;
}

static int put_tree(struct connect_job *j, const struct stacks *s)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	b.budget = j->out.budget;
	pyroscope_put_tree(&b, &s->nodes);
	if (b.failed)
		return too_large(j);
	pyroscope_put_bytes(&j->answer, "tree", b.data, b.len);
	return 0;
}

static int put_dot(struct connect_job *j, const struct stacks_query *q, const struct stacks *s)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	b.budget = j->out.budget;
	if (api_stacks_dot(j, q, s, &b))
		return -EINVAL;
	pyroscope_put_text(&j->answer, "dot", b.data ?: "");
	return 0;
}

static int put_pprof(struct connect_job *j, const struct stacks_query *q)
{
	int r;

	pyroscope_put_begin(&j->answer, "pprof");
	pyroscope_put_begin(&j->answer, "profile");
	r = api_stacks_pprof(j, q, &j->out);
	pyroscope_put_end(&j->answer);
	pyroscope_put_end(&j->answer);
	return r;
}

static int put_stacks(struct connect_job *j, const struct stacks_query *q)
{
	struct stacks s;
	int r;

	if (q->format == STACKS_PPROF)
		return put_pprof(j, q);
	if (api_stacks_read(j, q, NULL, &s))
		return -EINVAL;
	r = q->format == STACKS_TREE  ? put_tree(j, &s)
	    : q->format == STACKS_DOT ? put_dot(j, q, &s)
				      : put_flame(j, &s, false);
	api_stacks_free(&s);
	return r;
}

int api_stacks_run(struct connect_job *j,
		   int (*put)(struct connect_job *j, const struct stacks_query *q))
{
	struct stacks_query q;
	int r = api_stacks_parse(j, j->request, &q);

	if (r)
		return r;
	r = put(j, &q);
	api_stacks_done(&q);
	return r;
}

int api_pyroscope_select_merge_stacktraces(struct connect_job *j)
{
	return api_stacks_run(j, put_stacks);
}

/* The same for some spans, in those formats that its answer has. */
int api_pyroscope_select_merge_span_profile(struct connect_job *j)
{
	struct stacks_query q;
	int r;

	if (!has(j->request, "span_selector"))
		return api_connect_fail(&j->q, CONNECT_INVALID_ARGUMENT,
					"span_selector: expected at least one id");
	r = api_stacks_parse(j, j->request, &q);
	if (r)
		return r;
	r = q.format > STACKS_TREE ? unimplemented(j, "such format of spans") : put_stacks(j, &q);
	api_stacks_done(&q);
	return r;
}

/* A difference has one form: the API says that the formats of both sides are ignored. */
static void forget_formats(json_t *request)
{
	json_object_del(json_object_get(request, "left"), "format");
	json_object_del(json_object_get(request, "right"), "format");
}

int api_pyroscope_diff(struct connect_job *j)
{
	struct stacks_sides sides;
	struct stacks s;
	int r;

	forget_formats(j->request);
	r = api_stacks_parse_sides(j, j->request, &sides);
	if (r)
		return r;
	r = api_stacks_read(j, &sides.right, &sides.left, &s);
	if (!r) {
		r = put_flame(j, &s, true);
		api_stacks_free(&s);
	}
	api_stacks_sides_done(&sides);
	return r;
}
