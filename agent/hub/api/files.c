/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as files: folded stacks, pprof, speedscope. */
#include "hub/api/query_job.h"

struct file_job {
	struct query_job q;
	struct tracing_request request;
};

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
static int parse_file(struct file_job *j, struct field_error *reterr)
{
	const struct call *c = j->q.call;
	_cleanup_free_ char *made = NULL;
	const char *body = api_call_body(c, &made, reterr);

	return body ? query_tracing_parse(body, made ? strlen(body) : c->n_body, &j->request,
					  reterr)
		    : -EINVAL;
}

/* A pprof file is compressed with gzip. */
static int write_file(struct query_file *f, enum file_format format, struct buf *out)
{
	_cleanup_buf_ struct buf plain = {0};
	int e;

	if (format != FILE_PPROF)
		return query_file_write(f, format, out);
	buf_init(&plain, out->max_bytes);
	plain.budget = out->budget;
	e = query_file_write(f, format, &plain);
	return e ? e : buf_add_gzip(out, plain.data, plain.len, API_GZIP_LEVEL);
}

static int read_file(struct file_job *j, struct buf *out, struct field_error *reterr)
{
	struct symbols_names *names = api_query_names(&j->q, j->request.selection);
	_cleanup_free_ char *unread = NULL;
	struct store_summary s = {0};
	struct query_file *f;
	int e;

	f = query_file_new(j->request.selection, names ? symbols_name : NULL, names);
	query_file_set_budget(f, &j->q.bytes->budget);
	e = store_read(j->q.store, &j->q.call->scope, j->request.selection, query_file_add, f, &s,
		       reterr);
	if (!e)
		e = write_file(f, files[file_of(j->q.call)].format, out);
	if (e == -E2BIG)
		field_error_set(reterr, "file", "the file would be too large: ask for less");
	j->q.n_rows = s.n_rows;
	unread = names ? symbols_names_unread(names) : NULL;
	j->q.call->lacks_names = unread != NULL;
	query_file_free(f);
	symbols_names_free(names);
	store_summary_done(&s);
	return e;
}

static void make_file(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;
	_cleanup_buf_ struct buf out;
	struct field_error e = {0};

	buf_init(&out, QUERY_MAX_REPLY_BYTES);
	out.budget = &q->bytes->budget;
	if (parse_file(j, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	j->request.selection->given_up = &q->given_up;
	if (read_file(j, &out, &e)) {
		api_query_fail(q, &e);
		return;
	}
	q->call->file_name = files[file_of(q->call)].file_name;
	q->content_type = files[file_of(q->call)].content_type;
	api_query_answer(q, &out);
}

static void file_done(struct query_job *q)
{
	query_tracing_request_done(&((struct file_job *)q)->request);
}

void api_handle_file(struct call *c)
{
	static const struct query_kind kind = {
		.bytes = sizeof(struct file_job), .make_reply = make_file, .done = file_done};

	api_query_post(c, &kind);
}
