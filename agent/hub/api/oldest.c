/* SPDX-License-Identifier: Apache-2.0 */
/* From when on the store has data of each namespace that the user may see. */
#include "hub/api/query_job.h"

#include <inttypes.h>

struct oldest_answer {
	struct buf json;
	size_t n;
};

static void put_text(struct buf *b, const char *text)
{
	if (text)
		buf_json_string(b, text);
	else
		buf_puts(b, "null");
}

static void add_place(const struct store_cut *of, int64_t oldest_s, int64_t newest_s, void *arg)
{
	struct oldest_answer *a = arg;
	struct buf *b = &a->json;

	(void)newest_s;
	buf_puts(b, a->n++ ? ",{\"cluster\":" : "{\"cluster\":");
	put_text(b, of->cluster);
	buf_puts(b, ",\"namespace\":");
	put_text(b, of->ns);
	buf_printf(b, ",\"unverified\":%s,\"oldest\":%" PRId64 ",\"deleted_until\":",
		   of->unverified ? "true" : "false", oldest_s);
	if (of->until_s)
		buf_printf(b, "%" PRId64 "}", of->until_s);
	else
		buf_puts(b, "null}");
}

static void make_oldest(struct query_job *q)
{
	struct oldest_answer a = {.json.budget = &q->bytes->budget};
	const char *note = q->call->scope_note;
	struct field_error e = {0};

	buf_puts(&a.json, "{\"OPT_STATUS\":\"SUCCESS\",\"DESCRIPTION\":\"\",\"result\":[");
	if (store_oldest(q->store, &q->call->scope, &q->given_up, add_place, &a, &e)) {
		buf_done(&a.json);
		api_query_fail(q, &e);
		return;
	}
	q->n_rows = a.n;
	buf_puts(&a.json, note ? "],\"notes\":[" : "]");
	if (note) {
		buf_json_string(&a.json, note);
		buf_putc(&a.json, ']');
	}
	buf_putc(&a.json, '}');
	api_query_answer(q, &a.json);
}

static void oldest_done(struct query_job *q)
{
	(void)q;
}

void api_handle_oldest(struct call *c)
{
	static const struct query_kind kind = {.bytes = sizeof(struct query_job),
					       .make_reply = make_oldest,
					       .done = oldest_done,
					       .choices = true,
					       .offers = true};

	api_query_post(c, &kind);
}
