/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as files. */
#include "hub/api/query_job.h"

#include <stdlib.h>

struct file_job {
	struct query_job q;
	struct file_query request;
	char *name; /* of the file */
};

/* The routes have only paths of formats. */
static enum file_format format_of(const struct call *c)
{
	enum file_format f;

	assert_se(query_file_format_from_name(c->route->path + strlen(QUERY_FILES_PATH), &f) == 0);
	return f;
}

/* Reads the selection from the body, or from the parameters of a GET. */
static int parse_file(struct file_job *j, struct field_error *reterr)
{
	const struct call *c = j->q.call;
	_cleanup_free_ char *made = NULL;
	const char *body = api_call_body(c, &made, reterr);

	return body ? query_file_parse(body, made ? strlen(body) : c->n_body, format_of(c),
				       &j->request, reterr)
		    : -EINVAL;
}

static int write_file(const struct file_job *j, const struct query_file *f,
		      const struct store_summary *s, struct buf *out)
{
	const struct file_format_info *info = query_file_format(format_of(j->q.call));
	struct profile_file file = {.event = j->request.tracing.selection->event};
	_cleanup_buf_ struct buf plain = {0};
	char **notes;
	int e;

	buf_init(&plain, out->max_bytes);
	plain.budget = out->budget;
	file.n_notes = query_file_notes(&j->request.tracing, s, &notes);
	file.notes = (const char *const *)notes;
	e = info->write(query_file_batch(f), &file, info->flags & FILE_IS_GZIP ? &plain : out);
	if (!e && info->flags & FILE_IS_GZIP)
		e = buf_add_gzip(out, plain.data, plain.len, API_GZIP_LEVEL);
	for (size_t i = 0; i < file.n_notes; i++)
		free(notes[i]);
	free(notes);
	return e;
}

void api_query_left_out(struct query_job *q, bool samples, bool stacks)
{
	struct call *c = q->call;
	const char *const words[] = {c->scope_note ? "namespaces" : NULL,
				     q->unread ? "names" : NULL, samples ? "samples" : NULL,
				     stacks ? "stacks" : NULL};
	struct buf b = {0};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (words[i])
			buf_printf(&b, "%s%s", b.len ? ", " : "", words[i]);
	free(c->left_out);
	c->left_out = b.len ? buf_steal(&b) : NULL;
}

static int read_file(struct file_job *j, struct buf *out, struct field_error *reterr)
{
	struct selection *sel = j->request.tracing.selection;
	struct symbols_names *names = api_query_names(&j->q, sel);
	struct store_summary s = {0};
	struct query_file *f;
	int e;

	f = query_file_new(sel, names ? symbols_name : NULL, names);
	query_file_set_budget(f, &j->q.bytes->budget);
	e = store_read(j->q.store, &j->q.call->scope, sel, query_file_add, f, &s, reterr);
	if (!e)
		e = write_file(j, f, &s, out);
	if (e == -E2BIG)
		field_error_set(reterr, "file", "the file would be too large: ask for less");
	j->q.unread = names ? symbols_names_unread(names) : NULL;
	api_query_left_out(&j->q, s.n_losses, s.truncated);
	j->q.n_rows = s.n_rows;
	query_file_free(f);
	symbols_names_free(names);
	store_summary_done(&s);
	return e;
}

static void make_file(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;
	const struct file_format_info *info;
	_cleanup_buf_ struct buf out;
	struct field_error e = {0};

	buf_init(&out, QUERY_MAX_REPLY_BYTES);
	out.budget = &q->bytes->budget;
	if (parse_file(j, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	j->request.tracing.selection->given_up = &q->given_up;
	j->request.tracing.scope_note = q->call->scope_note;
	if (read_file(j, &out, &e)) {
		api_query_fail(q, &e);
		return;
	}
	info = query_file_format(format_of(q->call));
	j->name = xasprintf("profile.%s", info->ending);
	q->call->file_name = j->name;
	q->content_type = info->content_type;
	api_query_answer(q, &out);
}

static void file_done(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;

	query_file_query_done(&j->request);
	free(j->name);
}

void api_handle_file(struct call *c)
{
	static const struct query_kind kind = {
		.bytes = sizeof(struct file_job), .make_reply = make_file, .done = file_done};

	api_query_post(c, &kind);
}

json_t *api_files_list(void)
{
	json_t *list = json_array();

	for (enum file_format f = 0; f < _FILE_FORMAT_MAX; f++) {
		const struct file_format_info *i = query_file_format(f);

		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:s}", "name", i->name, "ending",
						i->ending, "title", i->title, "about", i->about));
	}
	return list;
}
