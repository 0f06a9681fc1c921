/* SPDX-License-Identifier: Apache-2.0 */
/* Notes on an answer: what the reader must know, above all if the answer is empty. */
#include "hub/query/tree.h"

/* Writes that nothing is stored, and how to turn on an event that is off by default. */
static void nothing_stored(const struct event_info *e, bool asked_for,
			   char ret[static REPLY_NOTE_BYTES])
{
	int n = snprintf(ret, REPLY_NOTE_BYTES,
			 "no %s profile is stored for this time, process and filter", e->name);

	if (asked_for)
		n += snprintf(ret + n, REPLY_NOTE_BYTES - n, ": a target must ask for %s",
			      e->spec_field);
	if (e->local_key)
		snprintf(ret + n, REPLY_NOTE_BYTES - n,
			 ", or the configuration of podflame local say %s: false", e->local_key);
}

static bool names_calls(const struct predicate *p)
{
	bool names = p->tag && store_is_tag_of_calls(p->tag);

	for (size_t i = 0; !names && i < p->n_children; i++)
		names = names_calls(p->children[i]);
	return names;
}

/*
 * Whether group_by leaves out the samples outside of calls. A filter that names a call does so by
 * itself, and its reader knows it.
 */
static bool groups_leave_out(const struct selection *s)
{
	return s->group_by && store_is_tag_of_calls(s->group_by) &&
	       !(s->where && names_calls(s->where));
}

static void add_calls(const char *tag, char ret[static REPLY_NOTE_BYTES])
{
	size_t n = strlen(ret);

	snprintf(ret + n, REPLY_NOTE_BYTES - n,
		 "%sthe answer has only samples that were taken in a call, because others have "
		 "no %s",
		 n ? "; " : "", tag);
}

void query_reply_note(const struct tracing_request *r, const struct store_summary *s,
		      char ret[static REPLY_NOTE_BYTES])
{
	enum event event = r->selection->event;
	const struct event_info *e = profile_event_info(event);
	const bool only_calls = groups_leave_out(r->selection);

	*ret = 0;
	if (s->n_rows && e->snapshot)
		snprintf(ret, REPLY_NOTE_BYTES,
			 "live bytes as of the newest snapshot of each process");
	else if (r->send_queue_only && s->n_profiles)
		snprintf(ret, REPLY_NOTE_BYTES,
			 "only requests for the send queue: receive requests and registered memory "
			 "are values of their own (rdma_operation = 'receive' or 'register')");
	else if (s->n_rows || r->n_notes)
		;
	else if (!s->n_profiles)
		nothing_stored(e, event != EVENT_ON_CPU, ret);
	else if (e->snapshot)
		snprintf(ret, REPLY_NOTE_BYTES, "nothing that was seen allocated is still in use");
	else if (!only_calls)
		snprintf(ret, REPLY_NOTE_BYTES,
			 "profiles of this selection were stored, but without samples: no process "
			 "%s, or every sample was lost",
			 e->done);
	if (only_calls)
		add_calls(r->selection->group_by, ret);
}

void query_notes_put(struct buf *b, const struct tracing_request *r, const char *own)
{
	const char *const last[] = {own, r->scope_note};
	size_t n = r->n_notes;

	buf_putc(b, '[');
	for (size_t i = 0; i < r->n_notes; i++) {
		buf_puts(b, i ? "," : "");
		buf_json_string(b, r->notes[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(last); i++) {
		if (!last[i] || !*last[i])
			continue;
		buf_puts(b, n++ ? "," : "");
		buf_json_string(b, last[i]);
	}
	buf_putc(b, ']');
}
