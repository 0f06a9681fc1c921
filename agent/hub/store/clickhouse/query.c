/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A statement travels as a form (multipart/form-data): its text, its parameters, and perhaps a
 * table of ids ("external data"). So no text of a user is ever part of the SQL, and none is in the
 * address, which servers log.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>

#define INSERT_NS    (60 * NSEC_PER_SEC)
#define MEMORY_BYTES "4294967296" /* of ClickHouse, for one statement of a reader */
#define SPILL_BYTES  "1073741824" /* from here on, it uses its disk for sums and sorting */
/*
 * ClickHouse ends a statement of a reader that takes more than this, and one whose connection is
 * closed (only if it is read-only). A key lies in one partition, so FINAL need not look at others.
 */
#define READER_SETTINGS                                                                            \
	"&readonly=2&cancel_http_readonly_queries_on_client_close=1&max_memory_"                   \
	"usage=" MEMORY_BYTES "&max_bytes_before_external_group_by=" SPILL_BYTES                   \
	"&max_bytes_before_external_sort=" SPILL_BYTES "&max_result_bytes=268435456"               \
	"&result_overflow_mode=throw&do_not_merge_across_partitions_select_final=1"

/*
 * Several versions (25.3 to 26.5 and later) leave out rows because of what this cache kept of
 * another statement: ClickHouse issues 84508, 96060, 104781.
 */
#define NO_WRONG_CACHE "&use_query_condition_cache=0"
/*
 * ClickHouse refuses a field of more than http_max_field_value_size, which it takes from the
 * server's default profile. It puts fields named "query" together in their order (HTTPHandler.cpp).
 */
#define FIELD_BYTES 131072

void store_ch_sql_done(struct ch_sql *q)
{
	buf_done(&q->text);
	buf_done(&q->params);
	buf_done(&q->ids);
}

void store_ch_text(struct ch_sql *q, const char *sql)
{
	buf_puts(&q->text, sql);
}

void store_ch_int(struct ch_sql *q, int64_t value)
{
	buf_printf(&q->text, "%lld", (long long)value);
}

/* A parameter's value is written as in TabSeparated; a list has its texts in quotes. */
static void put_escaped(struct buf *b, const char *s)
{
	static const char special[] = "\\\t\n\r'";

	for (; *s; s++) {
		const char *at = strchr(special, *s);

		if (at)
			buf_putc(b, '\\');
		buf_putc(b, at ? "\\tnr'"[at - special] : *s);
	}
}

void store_ch_str(struct ch_sql *q, const char *value)
{
	buf_printf(&q->text, "{p%zu:String}", q->n_params++);
	put_escaped(&q->params, value);
	buf_putc(&q->params, '\0');
}

/* Adds a parameter with as many of the values as a field may have. Returns how many. */
static size_t put_some(struct ch_sql *q, const char *const *values, size_t n)
{
	size_t begin = q->params.len, i = 0;

	buf_printf(&q->text, "{p%zu:Array(String)}", q->n_params++);
	buf_putc(&q->params, '[');
	do {
		buf_puts(&q->params, i ? ",'" : "'");
		put_escaped(&q->params, values[i]);
		buf_putc(&q->params, '\'');
		/* each byte may have become two */
	} while (++i < n &&
		 q->params.len - begin + 2 * strlen(values[i]) + strlen(",'']") <= FIELD_BYTES);
	buf_puts(&q->params, "]");
	buf_putc(&q->params, '\0');
	return i;
}

void store_ch_strs(struct ch_sql *q, const char *const *values, size_t n)
{
	store_ch_text(q, "arrayConcat(");
	for (size_t done = 0; done < n;) {
		store_ch_text(q, done ? "," : "");
		done += put_some(q, values + done, n - done);
	}
	store_ch_text(q, ")");
}

/* ---- statements ---- */

static double seconds_left(const struct ch_limits *l)
{
	uint64_t now = now_mono_ns();

	return l->deadline_ns > now ? (double)(l->deadline_ns - now) / (double)NSEC_PER_SEC : 0.001;
}

/* head: what follows the name of the part in its head */
static void put_part(struct buf *body, const char *boundary, const char *name, const char *head,
		     const void *data, size_t n)
{
	buf_printf(body, "--%s\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n", boundary,
		   name, head);
	buf_add(body, data, n);
	buf_puts(body, "\r\n");
}

static void put_body(struct ch_sql *q, const char *boundary, struct buf *body)
{
	const char *value = q->params.data;

	body->failed |= q->text.failed || q->params.failed || q->ids.failed;
	if (body->failed)
		return;
	for (size_t at = 0; at < q->text.len; at += FIELD_BYTES)
		put_part(body, boundary, "query", "", q->text.data + at,
			 MIN(q->text.len - at, (size_t)FIELD_BYTES));
	for (size_t i = 0; i < q->n_params; i++) {
		char name[32];

		snprintf(name, sizeof(name), "param_p%zu", i);
		put_part(body, boundary, name, "", value, strlen(value));
		value += strlen(value) + 1;
	}
	if (q->ids_type)
		put_part(body, boundary, "pf_ids",
			 "; filename=\"pf_ids\"\r\nContent-Type: application/octet-stream",
			 q->ids.data ?: "", q->ids.len);
	buf_printf(body, "--%s--\r\n", boundary);
}

/* Who writes a text cannot know the boundary of the request that will have it. */
static void draw_boundary(char out[33])
{
	uint8_t bytes[16];

	random_bytes(bytes, sizeof(bytes));
	hex_encode(bytes, sizeof(bytes), out);
}

int store_ch_ask(struct ch_store *s, struct ch_sql *q, const struct ch_limits *l,
		 struct http_answer *ret, struct ch_rows *ret_rows, struct field_error *reterr)
{
	_cleanup_free_ char *ids = q->ids_type ? xasprintf("&pf_ids_format=RowBinary"
							   "&pf_ids_structure=id%%20%s",
							   q->ids_type)
					       : NULL;
	_cleanup_free_ char *path = xasprintf(
		"/?database=%s&default_format=RowBinary&wait_end_of_query=1"
		"&max_query_size=16777216&max_ast_elements=1000000&max_expanded_ast_elements="
		"1000000" NO_WRONG_CACHE "&max_execution_time=%.3f&enable_http_compression=1%s%s",
		q->database ?: s->database, seconds_left(l), q->changes ? "" : READER_SETTINGS,
		ids ?: "");
	_cleanup_buf_ struct buf body = {0};
	char boundary[33], type[80];
	int r;

	*ret = (struct http_answer){0};
	draw_boundary(boundary);
	snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
	put_body(q, boundary, &body);
	r = store_ch_post(s, &(struct ch_post){.path = path, .type = type, .body = &body}, l, ret,
			  reterr);
	if (r)
		return r;
	*ret_rows = (struct ch_rows){ret->body, ret->body + ret->n, false};
	return 0;
}

/* ---- which ClickHouse it is ---- */

/* The one that knows all that is asked of it: use_query_condition_cache is its newest. */
#define OLDEST_MAJOR 25
#define OLDEST_MINOR 3
#define VERSION_NS   (30 * NSEC_PER_SEC)

/* Reads "MAJOR.MINOR", with anything after it. */
static bool parse_version(const char *text, uint64_t *ret_major, uint64_t *ret_minor)
{
	size_t n = strspn(text, "0123456789");
	_cleanup_free_ char *major = xstrndup(text, n), *minor = NULL;

	if (text[n] != '.')
		return false;
	minor = xstrndup(text + n + 1, strspn(text + n + 1, "0123456789"));
	return !str_to_u64(major, 100000, ret_major) && !str_to_u64(minor, 100000, ret_minor);
}

static int check_version(const char *text, struct field_error *reterr)
{
	_cleanup_free_ char *line = xstrndup(text, strcspn(text, "\n")),
			    *shown = utf8_shorten(line, 60);
	uint64_t major, minor;

	if (!parse_version(text, &major, &minor)) {
		field_error_set(reterr, "store", "there is no ClickHouse: its version is \"%s\"",
				shown);
		return -EPROTONOSUPPORT;
	}
	if (major > OLDEST_MAJOR || (major == OLDEST_MAJOR && minor >= OLDEST_MINOR))
		return 0;
	field_error_set(reterr, "store", "ClickHouse %s is too old: podflame needs %d.%d or newer",
			shown, OLDEST_MAJOR, OLDEST_MINOR);
	return -EPROTONOSUPPORT;
}

int store_ch_check_version(struct ch_store *s, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + VERSION_NS};
	_cleanup_(http_answer_done) struct http_answer a = {0};
	_cleanup_buf_ struct buf body = {0};
	int r;

	buf_puts(&body, "SELECT version()");
	r = store_ch_post(s,
			  &(struct ch_post){.path = "/?default_format=TabSeparated",
					    .type = "text/plain",
					    .body = &body,
					    .to_any_version = true},
			  &l, &a, reterr);
	return r ? r : check_version(a.body, reterr);
}

/* ---- changes ---- */

static int run_in(struct ch_store *s, const struct ch_post *p, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + (s->insert_ns ?: INSERT_NS)};
	struct http_answer a;
	int r = store_ch_post(s, p, &l, &a, reterr);

	http_answer_done(&a);
	return r;
}

int store_ch_run(struct ch_store *s, const char *sql, struct field_error *reterr)
{
	_cleanup_buf_ struct buf body = {0};

	buf_puts(&body, sql);
	return run_in(s, &(struct ch_post){.path = "/?", .type = "text/plain", .body = &body},
		      reterr);
}

int store_ch_insert(struct ch_store *s, const char *table, const struct buf *rows,
		    struct field_error *reterr)
{
	_cleanup_free_ char *sql =
		xasprintf("INSERT INTO %s.%s FORMAT RowBinary", s->database, table);
	_cleanup_buf_ struct buf path = {0}, packed = {0};
	struct ch_post p = {.type = "application/octet-stream", .body = &packed, .packed = true};
	int r = rows->failed ? -E2BIG : http_compress(rows->data, rows->len, &packed);

	/* a batch may have windows of many days, and each day is a partition */
	buf_puts(&path, "/?max_partitions_per_insert_block=0&async_insert=0&query=");
	url_encode(&path, sql);
	p.path = path.data;
	if (!r)
		r = run_in(s, &p, reterr);
	if (r == -EIO) /* perhaps a column has another type now: the rows do not say theirs */
		atomic_store(&s->doubted, true);
	return r;
}
