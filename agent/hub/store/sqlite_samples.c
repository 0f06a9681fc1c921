/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a profile's samples are stored: as one blob, with four varints per sample. A table with a row
 * per sample would take three times as long to write, and more than ten times as long to add up. In
 * SQL, the function pf_samples(samples, time) returns the samples as rows.
 */
#include "hub/store/sqlite.h"

#include <stdlib.h>

void store_samples_put(struct buf *b, const struct stored_sample *s)
{
	buf_put_varint(b, (uint64_t)s->stack);
	buf_put_varint(b, (uint64_t)s->cpu + 1);
	buf_put_varint(b, (uint64_t)s->value);
	buf_put_varint(b, (uint64_t)s->n);
}

bool store_samples_get(const uint8_t **p, const uint8_t *end, struct stored_sample *ret)
{
	uint64_t stack, cpu, value, n;

	if (!store_varint_get(p, end, &stack) || !store_varint_get(p, end, &cpu) ||
	    !store_varint_get(p, end, &value) || !store_varint_get(p, end, &n))
		return false;
	*ret = (struct stored_sample){
		.stack = (int64_t)stack,
		.cpu = (int64_t)MIN(cpu, (uint64_t)SQ_MAX_VALUE) - 1,
		.value = (int64_t)MIN(value, (uint64_t)SQ_MAX_VALUE),
		.n = (int64_t)MIN(n, (uint64_t)SQ_MAX_VALUE),
	};
	return true;
}

/* ---- pf_samples: https://www.sqlite.org/vtab.html#tabfunc2 ---- */

enum { COLUMN_STACK, COLUMN_CPU, COLUMN_VALUE, COLUMN_N, COLUMN_SAMPLES, COLUMN_TIME };

struct sample_cursor {
	sqlite3_vtab_cursor base; /* must be the first member */
	struct buf samples;	  /* a copy, because SQLite frees the argument after xFilter */
	const uint8_t *next;
	struct stored_sample here;
	int64_t time_s, n;
	bool at_end;
};

static int table_connect(sqlite3 *db, void *arg, int argc, const char *const *argv,
			 sqlite3_vtab **ret, char **reterr)
{
	int rc = sqlite3_declare_vtab(
		db, "CREATE TABLE x(stack, cpu, value, n, samples HIDDEN, time HIDDEN)");

	(void)arg, (void)argc, (void)argv, (void)reterr;
	if (rc != SQLITE_OK)
		return rc;
	*ret = sqlite3_malloc(sizeof(**ret));
	if (!*ret)
		return SQLITE_NOMEM;
	**ret = (sqlite3_vtab){};
	return SQLITE_OK;
}

static int table_disconnect(sqlite3_vtab *table)
{
	sqlite3_free(table);
	return SQLITE_OK;
}

/* Accepts a plan only if it gives both arguments of pf_samples. */
static int table_plan(sqlite3_vtab *table, sqlite3_index_info *info)
{
	unsigned have = 0;

	(void)table;
	for (int i = 0; i < info->nConstraint; i++) {
		int argument = info->aConstraint[i].iColumn - COLUMN_SAMPLES;

		if (argument < 0 || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ ||
		    !info->aConstraint[i].usable || have & 1u << argument)
			continue;
		have |= 1u << argument;
		info->aConstraintUsage[i].argvIndex = argument + 1;
		info->aConstraintUsage[i].omit = 1;
	}
	info->estimatedCost = info->estimatedRows = 100;
	return have == 3 ? SQLITE_OK : SQLITE_CONSTRAINT;
}

static int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **ret)
{
	struct sample_cursor *c = xcalloc(1, sizeof(*c));

	(void)table;
	*ret = &c->base;
	return SQLITE_OK;
}

static int cursor_close(sqlite3_vtab_cursor *base)
{
	struct sample_cursor *c = (struct sample_cursor *)base;

	buf_done(&c->samples);
	free(c);
	return SQLITE_OK;
}

static int cursor_next(sqlite3_vtab_cursor *base)
{
	struct sample_cursor *c = (struct sample_cursor *)base;
	const uint8_t *end = (const uint8_t *)c->samples.data + c->samples.len;

	c->at_end = !store_samples_get(&c->next, end, &c->here);
	c->n++;
	return SQLITE_OK;
}

static int cursor_filter(sqlite3_vtab_cursor *base, int plan, const char *text, int argc,
			 sqlite3_value **argv)
{
	struct sample_cursor *c = (struct sample_cursor *)base;

	(void)plan, (void)text, (void)argc;
	buf_reset(&c->samples);
	buf_add(&c->samples, sqlite3_value_blob(argv[0]), (size_t)sqlite3_value_bytes(argv[0]));
	if (c->samples.failed)
		return SQLITE_TOOBIG;
	c->next = (const uint8_t *)c->samples.data;
	c->time_s = sqlite3_value_int64(argv[1]);
	c->n = 0;
	return cursor_next(base);
}

static int cursor_at_end(sqlite3_vtab_cursor *base)
{
	return ((struct sample_cursor *)base)->at_end;
}

static int cursor_column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int column)
{
	const struct sample_cursor *c = (struct sample_cursor *)base;
	const int64_t values[] = {[COLUMN_STACK] = c->here.stack,
				  [COLUMN_CPU] = c->here.cpu,
				  [COLUMN_VALUE] = c->here.value,
				  [COLUMN_N] = c->here.n,
				  [COLUMN_TIME] = c->time_s};

	if (column != COLUMN_SAMPLES)
		sqlite3_result_int64(ctx, values[column]);
	return SQLITE_OK;
}

static int cursor_id(sqlite3_vtab_cursor *base, sqlite3_int64 *ret)
{
	*ret = ((struct sample_cursor *)base)->n;
	return SQLITE_OK;
}

static const sqlite3_module table = {
	.xConnect = table_connect, /* without xCreate, SQL needs no CREATE VIRTUAL TABLE */
	.xDisconnect = table_disconnect,
	.xBestIndex = table_plan,
	.xOpen = cursor_open,
	.xClose = cursor_close,
	.xFilter = cursor_filter,
	.xNext = cursor_next,
	.xEof = cursor_at_end,
	.xColumn = cursor_column,
	.xRowid = cursor_id,
};

/* ---- pf_pack(stack, cpu, value, n): makes a blob of the sample rows of an older file ---- */

static void pack_step(sqlite3_context *ctx, int n, sqlite3_value **v)
{
	struct buf *b = sqlite3_aggregate_context(ctx, sizeof(*b));

	(void)n;
	if (!b)
		return sqlite3_result_error_nomem(ctx);
	store_samples_put(b, &(struct stored_sample){
				     .stack = sqlite3_value_int64(v[0]),
				     .cpu = sqlite3_value_int64(v[1]),
				     .value = sqlite3_value_int64(v[2]),
				     .n = sqlite3_value_int64(v[3]),
			     });
}

static void pack_final(sqlite3_context *ctx)
{
	struct buf *b = sqlite3_aggregate_context(ctx, 0);

	if (b && b->failed)
		sqlite3_result_error_toobig(ctx);
	else
		sqlite3_result_blob64(ctx, b && b->len ? b->data : "", b ? b->len : 0,
				      SQLITE_TRANSIENT);
	if (b)
		buf_done(b);
}

int store_samples_functions(sqlite3 *db)
{
	int rc = sqlite3_create_module(db, "pf_samples", &table, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(db, "pf_pack", 4, SQLITE_UTF8 | SQLITE_DIRECTONLY,
					     NULL, NULL, pack_step, pack_final);
	return store_sq_errno(rc);
}
