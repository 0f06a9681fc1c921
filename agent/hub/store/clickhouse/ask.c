/* SPDX-License-Identifier: Apache-2.0 */
/* A statement of a reader, and the rows of its answer one after another. */
#include "hub/store/clickhouse/clickhouse.h"

int store_ch_ends_early(struct field_error *reterr)
{
	field_error_set(reterr, "store", "ClickHouse's answer ends early, or is none of ours");
	return -EIO;
}

static int more_rows(size_t most, struct field_error *reterr)
{
	field_error_set(reterr, "store", "ClickHouse's answer has more than the %zu rows asked for",
			most);
	return -EIO;
}

int store_ch_each(struct ch_store *s, struct ch_sql *q, const struct ch_limits *l, size_t most,
		  ch_take_fn *take, void *arg, struct field_error *reterr)
{
	struct http_answer a = {0};
	struct ch_rows rows;
	int e = store_ch_ask(s, q, l, &a, &rows, reterr);

	for (size_t n = 0; !e && store_ch_more(&rows); n++) {
		e = n == most ? more_rows(most, reterr) : take(&rows, arg);
		if (rows.failed)
			e = store_ch_ends_early(reterr);
	}
	http_answer_done(&a);
	store_ch_sql_done(q);
	return e;
}
