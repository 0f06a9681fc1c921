/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests that read the store. Each request is one job on a query worker, which parses the
 * body and makes the whole reply: compiling a filter's regular expressions may take a second. The
 * loop thread only sends the reply. If the queue is full, the answer is 503. If the client closes
 * the connection, its query ends early.
 */
#include "hub/api/api_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* If a query takes longer, /healthz fails. The store's own limit for a query is shorter. */
#define QUERY_LIMIT_NS (2 * 60 * NSEC_PER_SEC) /* time of one query */

struct query_job {
	struct queued queued;
	void (*make_reply)(struct query_job *q);
	struct call *call;
	struct store *store;
	struct symbols *symbols; /* NULL: no uploaded symbols */
	struct tracing_request tracing;
	struct values_request values;
	struct choices_request choices;
	struct series_query series;
	struct tree_query tree;
	struct groups_query groups;
	const char *content_type; /* NULL: JSON */
	char *reply;
	size_t n_reply;
	int http;
	atomic_bool given_up; /* the client has closed the connection */
};

static void query_done(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	api_queue_ended(&q->queued);
	if (atomic_load(&q->given_up))
		api_call_free(q->call);
	else
		api_call_reply(q->call, q->http, q->content_type ?: "application/json", q->reply,
			       q->n_reply);
	query_tracing_request_done(&q->tracing);
	query_values_request_done(&q->values);
	query_choices_request_done(&q->choices);
	query_series_done(&q->series);
	query_tree_query_done(&q->tree);
	query_groups_done(&q->groups);
	free(q->reply);
	free(q);
}

static void caller_left(void *arg)
{
	struct query_job *q = arg;

	atomic_store(&q->given_up, true);
	counter_add(counter("api_refused_total", "reason", "caller_left"), 1);
	if (api_queue_remove(&q->queued))
		query_done(&q->queued.job);
}

static void run(struct job *job)
{
	struct query_job *q = (struct query_job *)job;

	if (atomic_load(&q->given_up))
		return;
	q->make_reply(q);
	q->call->encoded = api_encode(q->call->accepts, &q->reply, &q->n_reply);
}

static void post(struct call *c, void (*make_reply)(struct query_job *q), bool choices)
{
	struct query_job *q = xcalloc(1, sizeof(*q));

	q->queued = (struct queued){
		.job = {.run = run,
			.done = query_done,
			.n_bytes = sizeof(*q) + c->n_body,
			.deadline_ns = QUERY_LIMIT_NS},
		.user = c->user,
		.choices = choices,
	};
	q->make_reply = make_reply;
	q->call = c;
	q->store = c->api->config.store;
	q->symbols = c->api->config.symbols;
	if (api_queue_post(c->api->queue, &q->queued) == 0) {
		http_conn_on_gone(c->conn, caller_left, q);
		return;
	}
	counter_add(counter("api_refused_total", "reason", "queries_busy"), 1);
	q->reply = query_tracing_error("UNAVAILABLE", "too many queries are waiting; try again",
				       NULL, &q->http, &q->n_reply);
	query_done(&q->queued.job);
}

static void refuse(struct query_job *q, const struct field_error *e)
{
	q->reply = query_tracing_refused(e, &q->http, &q->n_reply);
}

static void fail(struct query_job *q, const struct field_error *e)
{
	q->reply = query_tracing_error("FAIL", e->reason, NULL, &q->http, &q->n_reply);
}

static void answer(struct query_job *q, struct buf *b)
{
	q->http = 200;
	q->n_reply = b->len;
	q->reply = buf_steal(b);
}

/* ---- ProfileTracing ---- */

struct adding {
	struct tree *tree;
	int max_kernel_stack_depth;
};

static int add_row(const struct store_row *row, void *arg)
{
	struct adding *a = arg;

	return query_tree_add(a->tree, row, a->max_kernel_stack_depth);
}

/* Reads the rows of a selection into a tree, with the names that uploaded symbols have. */
static int read_tree(struct query_job *q, struct selection *s, struct adding *a,
		     struct store_summary *ret, struct field_error *reterr)
{
	struct symbols_names *names = NULL;
	int e;

	s->given_up = &q->given_up;
	if (q->symbols && symbols_any(q->symbols))
		names = symbols_names_new(q->symbols);
	query_tree_set_names(a->tree, names ? symbols_name : NULL, names);
	e = store_read(q->store, s, add_row, a, ret, reterr);
	symbols_names_free(names);
	return e;
}

static void make_tracing(struct query_job *q)
{
	struct store_summary s = {0};
	struct field_error e = {0};
	struct adding a;

	if (query_tracing_parse(q->call->body, q->call->n_body, &q->tracing, &e)) {
		refuse(q, &e);
		return;
	}
	a = (struct adding){query_tree_new(&query_deepflow_form),
			    q->tracing.max_kernel_stack_depth};
	if (read_tree(q, q->tracing.selection, &a, &s, &e))
		q->reply =
			query_tracing_error("FAIL", e.reason, &q->tracing, &q->http, &q->n_reply);
	else
		q->reply = query_tracing_reply(a.tree, &q->tracing, &s, &q->http, &q->n_reply);
	store_summary_done(&s);
	query_tree_free(a.tree);
}

void api_handle_tracing(struct call *c)
{
	post(c, make_tracing, false);
}

/* ---- files ---- */

static const struct {
	const char *path_end, *content_type, *file_name;
	enum file_format format;
} files[] = {
	{"folded", "text/plain; charset=utf-8", "profile.folded", FILE_FOLDED},
	{"pprof", "application/octet-stream", "profile.pb.gz", FILE_PPROF},
	{"speedscope", "application/json", "profile.speedscope.json", FILE_SPEEDSCOPE},
};

static size_t file_of(const struct call *c)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(files) && !str_has_suffix(c->path, files[i].path_end))
		i++;
	return i;
}

/* Reads the selection from the body, or from the parameters of a GET. */
static int parse_file(struct query_job *q, struct field_error *reterr)
{
	const struct call *c = q->call;
	_cleanup_free_ char *body =
		streq(c->route->method, "GET") ? query_parameters(c->parameters, reterr) : NULL;

	if (streq(c->route->method, "POST"))
		return query_tracing_parse(c->body, c->n_body, &q->tracing, reterr);
	return body ? query_tracing_parse(body, strlen(body), &q->tracing, reterr) : -EINVAL;
}

/* A pprof file is compressed with gzip. */
static int write_file(struct query_file *f, enum file_format format, struct buf *out)
{
	_cleanup_buf_ struct buf plain = {0};
	int e;

	if (format != FILE_PPROF)
		return query_file_write(f, format, out);
	buf_init(&plain, out->max_bytes);
	e = query_file_write(f, format, &plain);
	return e ? e : buf_add_gzip(out, plain.data, plain.len, API_GZIP_LEVEL);
}

static int read_file(struct query_job *q, struct buf *out, struct field_error *reterr)
{
	struct symbols_names *names = NULL;
	struct store_summary s = {0};
	struct query_file *f;
	int e;

	if (q->symbols && symbols_any(q->symbols))
		names = symbols_names_new(q->symbols);
	f = query_file_new(q->tracing.selection, names ? symbols_name : NULL, names);
	e = store_read(q->store, q->tracing.selection, query_file_add, f, &s, reterr);
	if (!e)
		e = write_file(f, files[file_of(q->call)].format, out);
	if (e == -E2BIG)
		field_error_set(reterr, "file", "the file would be too large: ask for less");
	query_file_free(f);
	symbols_names_free(names);
	store_summary_done(&s);
	return e;
}

static void make_file(struct query_job *q)
{
	_cleanup_buf_ struct buf out;
	struct field_error e = {0};

	buf_init(&out, QUERY_MAX_REPLY_BYTES);
	if (parse_file(q, &e)) {
		refuse(q, &e);
		return;
	}
	q->tracing.selection->given_up = &q->given_up;
	if (read_file(q, &out, &e)) {
		fail(q, &e);
		return;
	}
	q->call->file_name = files[file_of(q->call)].file_name;
	q->content_type = files[file_of(q->call)].content_type;
	answer(q, &out);
}

void api_handle_file(struct call *c)
{
	post(c, make_file, false);
}

/* ---- trees as columns ---- */

/* Reads the selection, and then the one before it, if there is one. */
static int read_trees(struct query_job *q, struct tree *tree, struct store_summary s[2],
		      struct field_error *reterr)
{
	struct adding a = {tree, -1};
	int e = read_tree(q, q->tree.tracing.selection, &a, &s[0], reterr);

	if (e || !q->tree.before.selection)
		return e;
	query_tree_before(tree);
	return read_tree(q, q->tree.before.selection, &a, &s[1], reterr);
}

static struct tree *tree_for(const struct tree_query *q)
{
	return query_tree_new(&(struct tree_form){.columns = true,
						  .by_line = q->by_line,
						  .grouped = q->group_by != NULL,
						  .max_nodes = q->max_nodes});
}

static void make_tree(struct query_job *q)
{
	struct store_summary s[2] = {0};
	struct field_error e = {0};
	struct tree *tree;

	if (query_tree_parse(q->call->body, q->call->n_body, &q->tree, &e)) {
		refuse(q, &e);
		return;
	}
	tree = tree_for(&q->tree);
	if (read_trees(q, tree, s, &e))
		fail(q, &e);
	else
		q->reply = query_columns_reply(tree, &q->tree, &s[0],
					       q->tree.before.selection ? &s[1] : NULL, &q->http,
					       &q->n_reply);
	store_summary_done(&s[0]);
	store_summary_done(&s[1]);
	query_tree_free(tree);
}

void api_handle_tree(struct call *c)
{
	post(c, make_tree, false);
}

static void make_groups(struct query_job *q)
{
	struct store_summary s = {0};
	struct field_error e = {0};
	struct adding a = {.max_kernel_stack_depth = -1};

	if (query_groups_parse(q->call->body, q->call->n_body, &q->groups, &e)) {
		refuse(q, &e);
		return;
	}
	a.tree = tree_for(&q->groups.tree);
	if (read_tree(q, q->groups.tree.tracing.selection, &a, &s, &e)) {
		fail(q, &e);
	} else {
		q->http = 200;
		q->reply = query_groups_reply(a.tree, &q->groups, &s, &q->n_reply);
	}
	store_summary_done(&s);
	query_tree_free(a.tree);
}

void api_handle_groups(struct call *c)
{
	post(c, make_groups, false);
}

/* ---- values, choices ---- */

/* The values of one tag, as JSON without the brackets around them. */
struct tag_values {
	struct buf json;
	size_t n, limit;
	bool truncated;
};
struct choices_adding {
	const struct store_choice *choices;
	struct tag_values **of; /* for each choice */
};

/* One value more than the limit shows that there are more values. */
static int add_value(const struct store_choice *c, const char *value, uint64_t n_samples, void *arg)
{
	const struct choices_adding *a = arg;
	struct tag_values *v = a->of[c - a->choices];

	if (v->n == v->limit) {
		v->truncated = true;
		return 0;
	}
	buf_puts(&v->json, v->n++ ? ",{\"value\":" : "{\"value\":");
	buf_json_string(&v->json, value);
	buf_printf(&v->json, ",\"samples\":%" PRIu64 "}", n_samples);
	return 0;
}

/* Reads the values of the tags into ret. A tag that is not stored has none. */
static int read_values(struct query_job *q, const struct values_request *tags, size_t n,
		       struct tag_values *ret, struct field_error *reterr)
{
	struct store_choice choices[QUERY_MAX_CHOICES];
	struct tag_values *of[QUERY_MAX_CHOICES];
	struct choices_adding a = {choices, of};
	size_t n_choices = 0;

	for (size_t i = 0; i < n; i++) {
		ret[i].limit = tags[i].limit;
		if (!tags[i].stored)
			continue;
		tags[i].tracing.selection->given_up = &q->given_up;
		of[n_choices] = &ret[i];
		choices[n_choices++] = (struct store_choice){tags[i].tag, tags[i].tracing.selection,
							     tags[i].limit + 1};
	}
	return n_choices ? store_choices(q->store, choices, n_choices, add_value, &a, reterr) : 0;
}

#define SUCCESS "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":"

static void make_values(struct query_job *q)
{
	struct tag_values v = {0};
	_cleanup_buf_ struct buf b = {0};
	struct field_error e = {0};

	if (query_values_parse(q->call->body, q->call->n_body, &q->values, &e)) {
		refuse(q, &e);
		return;
	}
	if (read_values(q, &q->values, 1, &v, &e)) {
		fail(q, &e);
	} else {
		buf_printf(&b, SUCCESS "[%s],\"debug\":null,\"truncated\":%s}", v.json.data ?: "",
			   v.truncated ? "true" : "false");
		answer(q, &b);
	}
	buf_done(&v.json);
}

static void put_choices(struct buf *b, const struct choices_request *c, const struct tag_values *v)
{
	buf_puts(b, SUCCESS "{");
	for (size_t i = 0; i < c->n_tags; i++) {
		buf_puts(b, i ? "," : "");
		buf_json_string(b, c->tags[i].tag);
		buf_printf(b, ":{\"values\":[%s],\"truncated\":%s}", v[i].json.data ?: "",
			   v[i].truncated ? "true" : "false");
	}
	buf_puts(b, "},\"debug\":null}");
}

static void make_choices(struct query_job *q)
{
	struct tag_values v[QUERY_MAX_CHOICES] = {0};
	_cleanup_buf_ struct buf b;
	struct field_error e = {0};

	buf_init(&b, QUERY_MAX_REPLY_BYTES);
	if (query_choices_parse(q->call->body, q->call->n_body, &q->choices, &e)) {
		refuse(q, &e);
		return;
	}
	if (read_values(q, q->choices.tags, q->choices.n_tags, v, &e)) {
		fail(q, &e);
	} else {
		put_choices(&b, &q->choices, v);
		if (b.failed) {
			field_error_set(&e, "limit", "the answer is too large: ask for less");
			fail(q, &e);
		} else {
			answer(q, &b);
		}
	}
	for (size_t i = 0; i < q->choices.n_tags; i++)
		buf_done(&v[i].json);
}

void api_handle_values(struct call *c)
{
	post(c, make_values, true);
}

void api_handle_choices(struct call *c)
{
	post(c, make_choices, true);
}

/* ---- series ---- */

static void make_series(struct query_job *q)
{
	struct store_series s = {0};
	struct field_error e = {0};

	if (query_series_parse(q->call->body, q->call->n_body, &q->series, &e)) {
		refuse(q, &e);
		return;
	}
	q->series.tracing.selection->given_up = &q->given_up;
	if (store_series(q->store,
			 &(struct series_request){q->series.tracing.selection, q->series.step_s,
						  q->series.group_by, q->series.limit},
			 &s, &e)) {
		fail(q, &e);
		return;
	}
	q->http = 200;
	q->reply = query_series_reply(&q->series, &s, &q->n_reply);
	store_series_done(&s);
}

void api_handle_series(struct call *c)
{
	post(c, make_series, false);
}

/* ---- tags ---- */

static json_t *tag_json(const struct tag_info *t)
{
	_cleanup_free_ char *help = query_tag_help(t);
	json_t *j = json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", t->name, "stored", t->stored,
			      "type", t->numeric ? "int" : "string", "same_as",
			      t->canonical ? t->canonical : "", "help", help);
	json_t *events = t->event_mask ? json_array() : NULL;
	const char *unset = query_tag_unset(t);

	for (enum event e = 0; t->event_mask && e < _EVENT_MAX; e++)
		if (t->event_mask & 1u << e)
			json_array_append_new(events, json_string(profile_event_info(e)->name));
	if (events) {
		json_object_set_new(j, "events", events);
		json_object_set_new(j, "title", json_string(t->title));
	}
	if (unset)
		json_object_set_new(j, "unset", json_string(unset));
	return j;
}

void api_handle_tags(struct call *c)
{
	json_t *list = json_array();
	const struct tag_info *t;
	size_t n;

	t = query_tag_table(&n);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, tag_json(&t[i]));
	api_call_json(c, 200,
		      json_pack("{s:s, s:s, s:o, s:n}", "OPT_STATUS", "SUCCESS", "DESCRIPTION", "",
				"result", list, "debug"));
}
