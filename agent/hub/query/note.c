/* SPDX-License-Identifier: Apache-2.0 */
/* Notes on an answer: what the reader must know, above all if the answer is empty. */
#include "hub/query/tree.h"

#include <inttypes.h>

#define MAX_TOLD 5 /* namespaces that a note names */

/* Writes that nothing is stored, and how to turn on an event that is off by default. */
static void nothing_stored(const struct event_info *e, bool asked_for,
			   char ret[static REPLY_NOTE_BYTES])
{
	int n = snprintf(ret, REPLY_NOTE_BYTES,
			 "no %s profile is stored for this time, process and filter", e->name);

	if (!e->spec_field)
		n += snprintf(ret + n, REPLY_NOTE_BYTES - n,
			      ": programs must push it (docs/push.md), or a target ask Go "
			      "programs for it (docs/scrape.md)");
	else if (asked_for)
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

static void add_unverified(uint64_t n, char ret[static REPLY_NOTE_BYTES])
{
	size_t used = strlen(ret);

	snprintf(ret + used, REPLY_NOTE_BYTES - used,
		 "%s%" PRIu64 " profile%s of pods that the hub could not verify (" TAG_UNVERIFIED
		 " = 'true')",
		 used ? "; " : "", n, n == 1 ? " is" : "s are");
}

void query_reply_note(const struct tracing_request *r, const struct store_summary *s,
		      char ret[static REPLY_NOTE_BYTES])
{
	enum event event = r->selection->event;
	const struct event_info *e = profile_event_info(event);
	const bool only_calls = groups_leave_out(r->selection);

	*ret = 0;
	if (s->n_rows && e->snapshot)
		snprintf(ret, REPLY_NOTE_BYTES, "live %s as of the newest snapshot of each process",
			 e->unit);
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
	if (s->n_unverified)
		add_unverified(s->n_unverified, ret);
}

/* Whose profiles were deleted, of those that the request is about. */
static size_t cuts_of(const struct tracing_request *r, const struct store_summary *s,
		      const struct store_cut *ret[static STORE_MAX_CUTS])
{
	_cleanup_(query_names_done) struct query_names names = {0};
	bool named = query_names_of(r->selection->where, &names);
	size_t n = 0;

	for (size_t i = 0; i < s->n_cuts; i++) {
		const struct store_cut *c = &s->cuts[i];

		if (!named || c->unverified || (c->ns && query_names_has(&names, c->ns)))
			ret[n++] = c;
	}
	return n;
}

static void put_cut(struct buf *b, const struct store_cut *c)
{
	char when[32];

	time_format((uint64_t)(c->until_s + 1) * NSEC_PER_SEC, when);
	if (c->ns)
		buf_printf(b, "those of namespace %s", c->ns);
	else
		buf_puts(b, c->unverified ? "those of pods that the hub could not verify"
					  : "those of no namespace");
	if (c->cluster)
		buf_printf(b, " in cluster %s", c->cluster);
	buf_printf(b, " from before %s", when);
}

char *query_deleted_note(const struct tracing_request *r, const struct store_summary *s)
{
	const struct store_cut *cuts[STORE_MAX_CUTS];
	size_t n = cuts_of(r, s, cuts);
	struct buf b = {0};

	for (size_t i = 0; i < MIN(n, (size_t)MAX_TOLD); i++) {
		buf_puts(&b, i ? ", " : "the store was full, so profiles were deleted: ");
		put_cut(&b, cuts[i]);
	}
	if (n > MAX_TOLD)
		buf_printf(&b, ", and those of %zu more", n - MAX_TOLD);
	return n ? buf_steal(&b) : NULL;
}

static void put_text(struct buf *b, const char *text)
{
	if (text)
		buf_json_string(b, text);
	else
		buf_puts(b, "null");
}

void query_put_deleted(struct buf *b, const struct tracing_request *r,
		       const struct store_summary *s)
{
	const struct store_cut *cuts[STORE_MAX_CUTS];
	size_t n = cuts_of(r, s, cuts);

	buf_puts(b, n ? ",\"deleted\":[" : "");
	for (size_t i = 0; i < n; i++) {
		buf_puts(b, i ? ",{\"cluster\":" : "{\"cluster\":");
		put_text(b, cuts[i]->cluster);
		buf_puts(b, ",\"namespace\":");
		put_text(b, cuts[i]->ns);
		buf_printf(b, ",\"unverified\":%s,\"until\":%" PRId64 "}",
			   cuts[i]->unverified ? "true" : "false", cuts[i]->until_s);
	}
	buf_puts(b, n ? "]" : "");
}

void query_notes_put(struct buf *b, const struct tracing_request *r, const char *own,
		     const char *deleted)
{
	const char *const last[] = {own, deleted, r->scope_note};
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
