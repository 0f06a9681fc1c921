/* SPDX-License-Identifier: Apache-2.0 */
/* Pyroscope's SelectMergeProfile: a selection as pprof. It is whole: max_nodes cuts nothing. */
#include "hub/api/pyroscope_stacks.h"

#include <stdlib.h>

static int read_file(struct connect_job *j, const struct stacks_query *s, struct query_file *f,
		     struct symbols_names *names, struct store_summary *ret,
		     struct field_error *reterr)
{
	int r;

	query_file_set_budget(f, j->out.budget);
	query_file_set_call_site(f, s->cut.call_site, s->cut.n_call_site);
	r = store_read(j->q.store, &j->q.call->scope, s->selection, query_file_add, f, ret, reterr);
	j->q.n_rows += ret->n_rows;
	free(j->q.unread);
	j->q.unread = names ? symbols_names_unread(names) : NULL;
	api_query_left_out(&j->q, ret->n_losses, ret->truncated);
	return r;
}

/* Its comments say what was lost, estimated or left out. */
static int write_file(const struct connect_job *j, const struct stacks_query *s,
		      const struct query_file *f, const struct store_summary *summary,
		      struct buf *out)
{
	const struct tracing_request r = {.selection = s->selection,
					  .scope_note = j->q.call->scope_note};
	const struct profile_value value = {s->type.parts[1], s->type.parts[2],
					    (unsigned)s->type.factor};
	char **notes;
	size_t n = query_file_notes(&r, summary, &notes);
	int e = profile_write(profile_pprof_writer, query_file_batch(f),
			      &(struct profile_file){.event = s->selection->event,
						     .notes = (const char *const *)notes,
						     .n_notes = n,
						     .value = &value},
			      out);

	while (n)
		free(notes[--n]);
	free(notes);
	return e;
}

int api_stacks_pprof(struct connect_job *j, const struct stacks_query *s, struct buf *out)
{
	struct symbols_names *names = api_query_names(&j->q, s->selection);
	struct query_file *f = query_file_new(s->selection, names ? symbols_name : NULL, names);
	struct store_summary summary = {0};
	struct field_error e = {0};
	int r = read_file(j, s, f, names, &summary, &e);

	if (!r)
		r = write_file(j, s, f, &summary, out);
	if (r == -E2BIG)
		field_error_set(&e, "file", "the answer is too large: ask for less");
	query_file_free(f);
	symbols_names_free(names);
	store_summary_done(&summary);
	return r ? api_connect_store_failed(&j->q, r, &e) : 0;
}

int api_pyroscope_select_merge_profile(struct connect_job *j)
{
	struct stacks_query q;
	int r = api_stacks_parse(j, j->request, &q);

	if (r)
		return r;
	r = api_stacks_pprof(j, &q, &j->out);
	api_stacks_done(&q);
	return r;
}
