/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbol files that users have uploaded. An upload is chunks of 1 MiB in symbol_chunks, and then a
 * row in symbols: until that is there, nobody sees it. Rows never change. Chunks without such a row
 * are of an upload that was deleted, or that did not end. Once an hour, one statement deletes those
 * that are old enough: to delete chunks the engine writes others anew.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <openssl/evp.h>
#include <stdlib.h>

#define CHUNK_BYTES  (1u << 20)
#define CHUNKS	     8 /* in one statement */
#define LIST_NS	     (10 * NSEC_PER_SEC)
#define GET_NS	     (20 * NSEC_PER_SEC)  /* for an upload */
#define PUT_NS	     (240 * NSEC_PER_SEC) /* the same; no statement begins later */
#define EXPIRE_EVERY (3600 * NSEC_PER_SEC)
#define LEFT_MAX     1000 /* uploads that one call deletes */
/* seconds; far more than PUT_NS, because clocks of servers differ, and replicas lag */
#define LEFT_S 7200
/* rows of the list: while a file is uploaded, its older upload is there, too */
#define ROWS_MAX (2 * STORE_MAX_UPLOADS)

static void make_sha256(const void *data, size_t n, uint8_t ret[32])
{
	if (!EVP_Digest(data, n, ret, NULL, EVP_sha256(), NULL))
		out_of_memory();
}

/* ---- the list ---- */

struct listing {
	store_upload_fn *fn;
	void *arg;
};

static void get_name(struct ch_rows *rows, char *ret, size_t room)
{
	size_t n;
	const char *text = store_ch_get_text(rows, &n);

	snprintf(ret, room, "%.*s", (int)MIN(n, room), text);
}

static int take_upload(struct ch_rows *rows, void *arg)
{
	const struct listing *l = arg;
	struct store_upload u = {0};

	get_name(rows, u.ns, sizeof(u.ns));
	get_name(rows, u.build_id, sizeof(u.build_id));
	u.id = store_ch_get_u64(rows);
	u.version = store_ch_get_u64(rows);
	u.bytes = store_ch_get_u64(rows);
	u.packed = store_ch_get_u64(rows);
	for (size_t i = 0; i < sizeof(u.sha256); i++)
		u.sha256[i] = store_ch_get_u8(rows);
	if (!rows->failed)
		l->fn(&u, l->arg);
	return 0;
}

static int list(void *sink, store_upload_fn *fn, void *arg, struct field_error *reterr)
{
	const struct ch_limits l = {.deadline_ns = now_mono_ns() + LIST_NS};
	struct listing listing = {fn, arg};
	struct ch_sql q = {0};

	store_ch_text(&q,
		      "SELECT left(ns, 64), left(build_id, 136), upload, version, bytes, packed, "
		      "sha256 FROM symbols ORDER BY ns, build_id, version DESC, upload DESC "
		      "LIMIT ");
	store_ch_int(&q, ROWS_MAX + 1);
	return store_ch_each(sink, &q, &l, ROWS_MAX, take_upload, &listing, reterr);
}

/* ---- put ---- */

struct putting {
	struct ch_store *s;
	const struct store_upload *u;
	uint64_t began_s; /* by the clock of ClickHouse, which also says when a chunk is too old */
	uint64_t deadline_ns;
	struct field_error *reterr;
};

static int insert(struct putting *p, const char *table, const struct buf *rows)
{
	if (now_mono_ns() > p->deadline_ns) {
		field_error_set(p->reterr, "store", "ClickHouse takes too long for the upload");
		return -ETIME;
	}
	return store_ch_insert(p->s, table, rows, p->reterr);
}

static int ask_time(struct putting *p)
{
	const struct ch_limits l = {.deadline_ns = p->deadline_ns};
	struct ch_sql q = {0};

	store_ch_text(&q, "SELECT toUInt64(toUnixTimestamp(now()))");
	return store_ch_each(p->s, &q, &l, 1, store_ch_take_u64, &p->began_s, p->reterr);
}

static int put_chunks(struct putting *p, const char *data, size_t n)
{
	int r = ask_time(p);

	for (size_t at = 0; !r && at < n;) {
		_cleanup_buf_ struct buf rows = {0};

		for (unsigned i = 0; i < CHUNKS && at < n; i++, at += MIN(n - at, CHUNK_BYTES)) {
			store_ch_put_u64(&rows, p->u->id);
			store_ch_put_u32(&rows, (uint32_t)(at / CHUNK_BYTES));
			store_ch_put_u32(&rows, (uint32_t)p->began_s);
			store_ch_put_text(&rows, data + at, MIN(n - at, CHUNK_BYTES));
		}
		r = insert(p, "symbol_chunks (upload, n, made, data)", &rows);
	}
	return r;
}

static int put_row(struct putting *p)
{
	const struct store_upload *u = p->u;
	_cleanup_buf_ struct buf row = {0};

	store_ch_put_str(&row, u->ns);
	store_ch_put_str(&row, u->build_id);
	store_ch_put_u64(&row, u->id);
	store_ch_put_u64(&row, u->version);
	store_ch_put_u64(&row, u->bytes);
	store_ch_put_u64(&row, u->packed);
	buf_add(&row, u->sha256, sizeof(u->sha256));
	return insert(p, "symbols (ns, build_id, upload, version, bytes, packed, sha256)", &row);
}

static int put(void *sink, struct store_upload *u, const void *data, size_t n,
	       struct field_error *reterr)
{
	struct putting p = {
		.s = sink, .u = u, .deadline_ns = now_mono_ns() + PUT_NS, .reterr = reterr};
	int r;

	u->id = 1 + random_below(INT64_MAX);
	u->packed = n;
	make_sha256(data, n, u->sha256);
	r = put_chunks(&p, data, n);
	return r ? r : put_row(&p);
}

/* ---- get ---- */

struct getting {
	const struct store_upload *u;
	char *data;
	size_t at; /* bytes that are there */
	bool wrong;
	struct ch_limits limits;
};

static int take_chunk(struct ch_rows *rows, void *arg)
{
	struct getting *g = arg;
	uint32_t nr = store_ch_get_u32(rows);
	size_t n, left = g->u->packed - g->at;
	const char *data = store_ch_get_text(rows, &n);

	if (rows->failed || nr != g->at / CHUNK_BYTES)
		return 0; /* the one before it is not there: the caller sees that */
	g->wrong |= n != MIN(left, CHUNK_BYTES);
	if (g->wrong)
		return 0;
	memcpy(g->data + g->at, data, n);
	g->at += n;
	return 0;
}

/* A chunk that came twice is there twice, until the engine merges both. */
static int get_chunks(struct ch_store *s, struct getting *g, struct field_error *reterr)
{
	int64_t from = (int64_t)(g->at / CHUNK_BYTES);
	struct ch_sql q = {0};

	store_ch_text(&q, "SELECT n, data FROM symbol_chunks WHERE upload=");
	store_ch_int(&q, (int64_t)g->u->id);
	store_ch_text(&q, " AND n>=");
	store_ch_int(&q, from);
	store_ch_text(&q, " AND n<");
	store_ch_int(&q, from + CHUNKS);
	store_ch_text(&q, " AND length(data)<=");
	store_ch_int(&q, CHUNK_BYTES);
	store_ch_text(&q, " ORDER BY n LIMIT 1 BY n");
	return store_ch_each(s, &q, &g->limits, CHUNKS, take_chunk, g, reterr);
}

static int get(void *sink, const struct store_upload *u, const struct store_wait *w, void *data,
	       struct field_error *reterr)
{
	struct getting g = {.u = u,
			    .data = data,
			    .limits = {MIN(now_mono_ns() + GET_NS, w->deadline_ns), w->given_up}};
	uint8_t sha256[sizeof(u->sha256)];
	int r = 0;

	while (!r && !g.wrong && g.at < u->packed) {
		size_t before = g.at;

		r = get_chunks(sink, &g, reterr);
		if (!r && g.at == before && !g.wrong)
			r = -ENOENT;
	}
	if (r == -ENOENT)
		field_error_set(reterr, "store", "a chunk of the upload is not there");
	if (r)
		return r;
	make_sha256(data, g.at, sha256);
	if (!g.wrong && memcmp(sha256, u->sha256, sizeof(sha256)) == 0)
		return 0;
	field_error_set(reterr, "store", "somebody has altered a chunk of the upload");
	return -EBADMSG;
}

/* ---- deletion ---- */

/* statement: with a blank at its end. Deletes rows of these uploads. */
static int delete_rows(struct ch_store *s, const char *statement, const char *table,
		       const uint64_t *ids, size_t n, struct field_error *reterr)
{
	struct ch_where w = {0};

	store_ch_put_change(&w, s, statement, table);
	store_ch_text(&w.sql, str_has_prefix(statement, "ALTER") ? " DELETE" : "");
	for (size_t i = 0; i < n; i++) {
		store_ch_text(&w.sql, i ? "," : " WHERE upload IN (");
		store_ch_int(&w.sql, (int64_t)ids[i]);
	}
	store_ch_text(&w.sql, ")");
	return store_ch_delete(s, s->expiring.term, &w, reterr);
}

/* The chunks stay until the next deletion of orphans: this may be called often. */
static int drop(void *sink, const struct store_upload *u, bool older, struct field_error *reterr)
{
	struct ch_store *s = sink;
	struct ch_where w = {0};

	store_ch_put_change(&w, s, "DELETE FROM ", "symbols");
	store_ch_text(&w.sql, " WHERE ns=");
	store_ch_str(&w.sql, u->ns);
	store_ch_text(&w.sql, " AND build_id=");
	store_ch_str(&w.sql, u->build_id);
	store_ch_text(&w.sql, " AND (upload=");
	store_ch_int(&w.sql, (int64_t)u->id);
	if (older) {
		store_ch_text(&w.sql, " OR version<");
		store_ch_int(&w.sql, (int64_t)u->version);
	}
	store_ch_text(&w.sql, ")");
	return store_ch_change(s, &w, reterr);
}

struct leftovers {
	uint64_t ids[LEFT_MAX];
	size_t n;
};

static int take_leftover(struct ch_rows *rows, void *arg)
{
	struct leftovers *l = arg;

	l->ids[l->n++] = store_ch_get_u64(rows);
	return 0;
}

/* Reads of which uploads a condition is true. Frees w. */
static int find_leftovers(struct ch_store *s, struct ch_where *w, struct leftovers *ret,
			  struct field_error *reterr)
{
	ret->n = 0;
	store_ch_text(&w->sql, " LIMIT ");
	store_ch_int(&w->sql, LEFT_MAX);
	return store_ch_ask_each(s, w, LEFT_MAX, take_leftover, ret, reterr);
}

/* " WHERE ...": the rows that hubs take for uploads. The others are none of ours, and stay. */
static void put_ours(struct ch_where *w)
{
	store_ch_text(&w->sql, " WHERE upload<=");
	store_ch_int(&w->sql, INT64_MAX);
	store_ch_text(&w->sql, " AND version<=");
	store_ch_int(&w->sql, INT64_MAX);
	store_ch_text(&w->sql, " AND bytes<=");
	store_ch_int(&w->sql, STORE_UPLOAD_FILE_BYTES);
	store_ch_text(&w->sql, " AND packed<=");
	store_ch_int(&w->sql, STORE_UPLOAD_BYTES);
}

/* Hubs that ended while they replaced a file have left the older upload. */
static int delete_replaced(struct ch_store *s, int64_t until_s, struct leftovers *l,
			   struct field_error *reterr)
{
	struct ch_where w = {0};
	int r;

	store_ch_text(&w.sql, "SELECT DISTINCT upload FROM symbols");
	put_ours(&w);
	store_ch_text(&w.sql, " AND version<");
	store_ch_int(&w.sql, until_s * (int64_t)NSEC_PER_SEC);
	store_ch_text(&w.sql, " AND upload NOT IN (SELECT argMax(upload, (version, upload)) FROM "
			      "symbols");
	put_ours(&w);
	store_ch_text(&w.sql, " GROUP BY ns, build_id)");
	r = find_leftovers(s, &w, l, reterr);
	return r || !l->n ? r : delete_rows(s, "DELETE FROM ", "symbols", l->ids, l->n, reterr);
}

static int delete_orphans(struct ch_store *s, struct leftovers *l, struct field_error *reterr)
{
	struct ch_where w = {0};
	int r;

	store_ch_text(&w.sql, "SELECT DISTINCT upload FROM symbol_chunks WHERE made<now()-");
	store_ch_int(&w.sql, LEFT_S);
	store_ch_text(&w.sql, " AND upload NOT IN (SELECT upload FROM symbols)");
	r = find_leftovers(s, &w, l, reterr);
	return r || !l->n ? r
			  : delete_rows(s, "ALTER TABLE ", "symbol_chunks", l->ids, l->n, reterr);
}

int store_ch_expire_uploads(struct ch_store *s, uint64_t now_wall_ns, struct field_error *reterr)
{
	_cleanup_free_ struct leftovers *l = xcalloc(1, sizeof(*l));
	int64_t until_s = (int64_t)(now_wall_ns / NSEC_PER_SEC) - LEFT_S;
	uint64_t now_ns = now_mono_ns();
	int r;

	if (s->expiring.uploads_ns && now_ns - s->expiring.uploads_ns < EXPIRE_EVERY)
		return 0;
	r = delete_replaced(s, until_s, l, reterr);
	if (!r)
		r = delete_orphans(s, l, reterr);
	if (!r) /* else the next call, a minute later, tries again */
		s->expiring.uploads_ns = now_ns;
	return r;
}

const struct upload_ops store_ch_uploads = {list, put, get, drop};
