/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to a request for values over time, as JSON. */
#include "hub/query/tree.h"

#include <inttypes.h>

static void put_values(struct buf *b, const int64_t *values, size_t n)
{
	buf_puts(b, "[");
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%s%" PRId64, i ? "," : "", values[i]);
	buf_puts(b, "]");
}

static void put_counts(struct buf *b, const uint64_t *counts, size_t n)
{
	buf_puts(b, "[");
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%s%" PRIu64, i ? "," : "", counts[i]);
	buf_puts(b, "]");
}

static void put_groups(struct buf *b, const struct store_series *s)
{
	buf_puts(b, ",\"groups\":[");
	for (size_t g = 0; g < s->n_groups; g++) {
		buf_puts(b, g ? ",{\"value\":" : "{\"value\":");
		if (s->groups[g].value)
			buf_json_string(b, s->groups[g].value);
		else
			buf_puts(b, "null");
		buf_puts(b, ",\"values\":");
		put_values(b, s->groups[g].values, s->n_steps);
		buf_puts(b, "}");
	}
	buf_puts(b, "],\"others\":");
	if (s->others)
		put_values(b, s->others, s->n_steps);
	else
		buf_puts(b, "null");
	buf_printf(b, ",\"cut_groups\":%s", s->cut_groups ? "true" : "false");
}

static void put_losses(struct buf *b, const struct store_series *s)
{
	buf_puts(b, ",\"losses\":[");
	for (size_t l = 0; l < s->n_losses; l++) {
		buf_puts(b, l ? ",{\"reason\":" : "{\"reason\":");
		buf_json_string(b, s->losses[l].reason);
		buf_puts(b, ",\"samples\":");
		put_counts(b, s->losses[l].n_samples, s->n_steps);
		buf_puts(b, ",\"time_ns\":");
		put_counts(b, s->losses[l].time_ns, s->n_steps);
		buf_puts(b, "}");
	}
	buf_puts(b, "]");
}

char *query_series_reply(const struct series_query *q, const struct store_series *s, size_t *ret_n)
{
	const struct selection *sel = q->tracing.selection;
	const struct store_summary found = {.n_rows = s->n_groups, .n_profiles = s->n_groups};
	char note[REPLY_NOTE_BYTES] = "";
	struct buf b = {.budget = q->tracing.budget};

	if (s->n_groups)
		query_reply_note(&q->tracing, &found, note);
	buf_printf(&b,
		   "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":{\"unit\":\"%s\","
		   "\"start\":%" PRId64 ",\"step\":%" PRIu32 ",\"steps\":%zu",
		   profile_event_info(sel->event)->unit, sel->time_start_s, q->step_s, s->n_steps);
	put_groups(&b, s);
	put_losses(&b, s);
	buf_puts(&b, ",\"starts\":");
	put_values(&b, s->starts, s->n_starts);
	buf_printf(&b, ",\"more_starts\":%s,\"notes\":", s->more_starts ? "true" : "false");
	query_notes_put(&b, &q->tracing, note, NULL);
	buf_puts(&b, "},\"debug\":null}");
	*ret_n = b.len;
	return buf_steal(&b);
}
