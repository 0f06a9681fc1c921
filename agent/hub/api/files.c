/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles as files. A file is sent in pieces, so that the hub never has its text as a whole: only
 * the rows that it is made of.
 */
#include "hub/api/query_job.h"

#include <stdlib.h>

#define PIECE_BYTES (256u << 10) /* of the text of a file: so much of it is made at a time */
/* memory for a piece, before and after compression, and while it is sent */
#define ROOM_BYTES (4 * PIECE_BYTES)

struct file_job {
	struct query_job q;
	struct file_query request;
	char *name; /* of the file */
	char **notes;
	struct profile_file about;
	struct query_file *rows; /* what the file is made of */
	struct profile_writer *writer;
	struct gzip *gzip; /* NULL: the file is not compressed */
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

	return body ? query_file_parse(body, made ? strlen(body) : c->n_body, &j->request, reterr)
		    : -EINVAL;
}

/* Frees what takes time to free, on the worker if the file comes to its end. */
static void end_file(struct file_job *j)
{
	j->writer = profile_writer_free(j->writer);
	j->gzip = gzip_free(j->gzip);
	j->rows = query_file_free(j->rows);
}

static void begin_file(struct file_job *j, const struct store_summary *s)
{
	const struct file_format_info *info = query_file_format(format_of(j->q.call));

	j->about.event = j->request.tracing.selection->event;
	j->about.n_notes = query_file_notes(&j->request.tracing, s, &j->notes);
	j->about.notes = (const char *const *)j->notes;
	j->about.levels = (const char *const *)j->request.tags;
	j->about.n_levels = j->request.n_tags;
	j->writer = info->writer(query_file_batch(j->rows), &j->about, &j->q.bytes->budget);
	if (info->flags & FILE_IS_GZIP)
		j->gzip = gzip_new(API_GZIP_LEVEL);
	j->name = xasprintf("profile.%s", info->ending);
	j->q.content_type = info->content_type;
}

/* Makes the next piece the reply. -E2BIG: there is no memory for what the file still needs. */
static int make_piece(struct file_job *j)
{
	_cleanup_buf_ struct buf text = {0}, packed = {0};
	int r = profile_writer_fill(j->writer, PIECE_BYTES, &text);

	if (r < 0)
		return r;
	if (j->gzip)
		gzip_add(j->gzip, &packed, text.data, text.len, r == 0);
	api_query_answer(&j->q, j->gzip ? &packed : &text);
	j->q.has_rest = r > 0;
	if (r == 0)
		end_file(j);
	return 0;
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

static int read_file(struct file_job *j, struct field_error *reterr)
{
	struct selection *sel = j->request.tracing.selection;
	struct symbols_names *names = api_query_names(&j->q, sel);
	struct buf_budget *budget = &j->q.bytes->budget;
	struct store_summary s = {0};
	int e;

	j->rows = query_file_new(sel, names ? symbols_name : NULL, names);
	query_file_set_budget(j->rows, budget);
	query_file_set_tags(j->rows, (const char *const *)j->request.tags, j->request.n_tags);
	e = store_read(j->q.store, &j->q.call->scope, sel, query_file_add, j->rows, &s, reterr);
	if (!e) {
		begin_file(j, &s);
		e = budget->take(budget, ROOM_BYTES) ? make_piece(j) : -E2BIG;
	}
	if (e == -E2BIG)
		field_error_set(reterr, "file", "the file would be too large: ask for less");
	j->q.unread = names ? symbols_names_unread(names) : NULL;
	api_query_left_out(&j->q, s.n_losses, s.truncated);
	j->q.n_rows = s.n_rows;
	symbols_names_free(names);
	store_summary_done(&s);
	return e;
}

/* Makes the whole file, or its first piece. */
static void make_file(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;
	struct field_error e = {0};

	if (parse_file(j, &e)) {
		api_query_refuse(q, &e);
		return;
	}
	j->request.tracing.selection->given_up = &q->given_up;
	j->request.tracing.scope_note = q->call->scope_note;
	if (read_file(j, &e)) {
		q->content_type = NULL;
		end_file(j);
		api_query_fail(q, &e);
		return;
	}
	q->call->file_name = j->name;
	q->n_kept = q->has_rest ? q->bytes->held : 0;
	if (q->has_rest && j->gzip)
		q->call->accepts = ENCODING_NONE; /* it would not get smaller */
}

static void make_rest_of_file(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;

	if (make_piece(j) < 0) {
		q->cut = "there is no memory for the rest of the file";
		end_file(j);
	}
}

static void file_done(struct query_job *q)
{
	struct file_job *j = (struct file_job *)q;

	end_file(j);
	for (size_t i = 0; i < j->about.n_notes; i++)
		free(j->notes[i]);
	free(j->notes);
	query_file_query_done(&j->request);
	free(j->name);
}

void api_handle_file(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct file_job),
					       .make_reply = make_file,
					       .make_rest = make_rest_of_file,
					       .paced = true,
					       .done = file_done};

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
