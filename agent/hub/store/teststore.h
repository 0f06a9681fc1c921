/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of a store only: writes to it, and reads from it. */
#pragma once

#include "hub/store/sqlite.h"
#include "lib/base/testdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#ifndef T0
#define T0 1700000000 /* end of every test's first window */
#endif

/* ---- a store ---- */

/* A database for each folder, and one for each store in memory. */
static inline struct store_config config_at(const char *path, char database[32])
{
	const char *url = getenv("CLICKHOUSE_URL");

	snprintf(database, 32, "t%llx",
		 (unsigned long long)(streq(path, ":memory:") ? random_below(UINT64_MAX)
							      : hash_str(path)));
	return (struct store_config){.kind = url ? "clickhouse" : "sqlite",
				     .path = path,
				     .url = url,
				     .cluster = url ? getenv("CLICKHOUSE_CLUSTER") : NULL,
				     .database = database};
}

static inline struct store *open_at(const char *path, uint64_t retention_ns, uint64_t max_bytes)
{
	char database[32];
	struct store_config c = config_at(path, database);
	struct field_error e = {0};
	struct store *s = NULL;

	c.retention_ns = retention_ns;
	c.max_bytes = max_bytes;
	if (store_open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/*
 * Setup and teardown of a test. memory_setup: a store in memory, struct store *s = *state.
 * disk_setup: a folder for a store on disk, const char *dir = *state.
 */
static inline int memory_setup(void **state)
{
	*state = open_at(":memory:", 0, 0);
	return 0;
}

static inline int memory_teardown(void **state)
{
	store_close(*state);
	return 0;
}

static inline int disk_setup(void **state)
{
	static char dir[TESTDIR_BYTES];

	*state = dir;
	return testdir_make(dir);
}

static inline int disk_teardown(void **state)
{
	return testdir_remove(*state);
}

#define IN_MEMORY(t) cmocka_unit_test_setup_teardown(t, memory_setup, memory_teardown)
#define ON_DISK(t)   cmocka_unit_test_setup_teardown(t, disk_setup, disk_teardown)

/* Runs SQL on the file of the store in dir, without the store's code. */
static inline void sql(const char *dir, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/profiles.sqlite", dir);
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(store_samples_functions(db), 0);
	if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* SQL that turns a file of version 8 into one of version 7. */
#define UNDO_8                                                                                     \
	"DROP TRIGGER profiles_INSERT; DROP TRIGGER profiles_DELETE; DROP TRIGGER losses_INSERT;"  \
	"DROP TRIGGER losses_DELETE; DROP TRIGGER links_INSERT; DROP TRIGGER links_DELETE;"        \
	"ALTER TABLE series DROP COLUMN place; ALTER TABLE series DROP COLUMN profiles;"           \
	"ALTER TABLE series DROP COLUMN bytes; ALTER TABLE stacks DROP COLUMN place;"              \
	"DROP TABLE places; PRAGMA user_version=7"

/* ---- what is written ---- */

static inline struct profile *add_profile(struct batch *b, const char *id, const char *app,
					  uint32_t pid, const char *ns, int64_t end_s)
{
	struct profile *p = profile_batch_profile(b);

	profile_id_make(&id, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->end_ns = (uint64_t)end_s * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, app);
	p->process_id = pid;
	profile_tag(b, p, "pod_cluster", "c1");
	profile_tag(b, p, "pod_node", "n1");
	if (ns)
		profile_tag(b, p, "pod_ns", ns);
	return p;
}

static inline void add_sample(struct batch *b, struct profile *p, const char *thread, bool main,
			      const char *leaf, int64_t value)
{
	struct frame f[] = {
		{.kind = FRAME_APP, .name = "main", .module = "/bin/x"},
		{.kind = FRAME_LIBRARY,
		 .name = leaf,
		 .module = "/lib/libc.so",
		 .file = "a.c",
		 .line = 7},
		{.kind = FRAME_APP,
		 .module = "/bin/x",
		 .build_id = "ab",
		 .address = 0x1234,
		 .start = 0x1200},
	};
	struct profile_sample *s = profile_add(b, p);

	s->thread_comm = profile_batch_str(b, thread);
	s->main_thread = main;
	s->cpu = -1;
	s->value = value;
	s->n_samples = (uint64_t)value / 10;
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
}

static inline struct batch *two_services(void)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "1", "api", 10, "app", T0);

	profile_tag(b, p, "k8s.label.tier", "it's \"web\"; --");
	add_sample(b, p, "worker", false, "write", 100);
	add_sample(b, p, "worker", false, "write", 50);
	add_sample(b, p, "api", true, "read", 20);
	profile_lose(b, p, "ring_full", 3, 0);
	p = add_profile(b, "2", "db", 11, "data", T0 + 10);
	add_sample(b, p, "db", true, "fsync", 70);
	p = add_profile(b, "3", "Total", 0, NULL, T0);
	add_sample(b, p, "x", false, "y", 1000);
	return b;
}

static inline void write_batch(struct store *s, struct batch *b, size_t want_new)
{
	size_t n_new = 0;

	assert_int_equal(store_write(s, b, &n_new), 0);
	assert_int_equal(n_new, want_new);
	profile_batch_free(b);
}

static inline void many_rows(struct store *s, int from_s, int n_profiles, int n_stacks)
{
	for (int i = 0; i < n_profiles; i++) {
		struct batch *b = profile_batch_new();
		char id[32], name[32];
		struct profile *p;

		snprintf(id, sizeof(id), "m%d", from_s + i);
		p = add_profile(b, id, "api", 10, "app", T0 + from_s + i);
		for (int j = 0; j < n_stacks; j++) {
			snprintf(name, sizeof(name), "function_%d", (i * 7 + j) % 20000);
			add_sample(b, p, "worker", false, name, 10);
		}
		write_batch(s, b, 1);
	}
}

/* ---- conditions ---- */

static inline struct predicate *leaf(enum predicate_op op, const char *tag, const char *value)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	p->tag = xstrdup(tag);
	if (value) {
		p->values = xcalloc(1, sizeof(char *));
		p->values[p->n_values++] = xstrdup(value);
	}
	return p;
}

static inline struct predicate *join(enum predicate_op op, struct predicate *a, struct predicate *b)
{
	struct predicate *p = xcalloc(1, sizeof(*p));

	p->op = op;
	p->children = xcalloc(2, sizeof(*p->children));
	p->children[p->n_children++] = a;
	if (b)
		p->children[p->n_children++] = b;
	return p;
}

/*
 * A predicate as deep as tag_filter allows: NOT, AND and OR alternate. All conditions in it have
 * the same answer.
 */
static inline struct predicate *nested(const char *tag, const char *value)
{
	struct predicate *p = leaf(PRED_EQ, tag, value);

	for (int i = 0; i < 10; i++) {
		p = join(i % 2 ? PRED_AND : PRED_OR, leaf(PRED_NE, tag, value),
			 join(PRED_NOT, p, NULL));
		p = join(PRED_NOT, p, NULL);
	}
	return p;
}

/* ---- what is read: everything, unless the selection has a scope ---- */

/* The values of one tag. */
static inline int read_values(struct store *s, const struct selection *sel, const char *tag,
			      size_t limit, store_choice_fn *fn, void *arg,
			      struct field_error *reterr)
{
	const struct store_choice c = {tag, sel, limit};

	return store_choices(s, sel->scope ?: &store_scope_all, &c, 1, fn, arg, reterr);
}

struct got {
	struct {
		char text[512];
		int64_t value;
		uint64_t n;
	} rows[64];
	size_t n;
	int64_t sum;
	struct store_summary summary;
};

static inline int take(const struct store_row *row, void *arg)
{
	_cleanup_buf_ struct buf b = {0};
	struct frame flat[64];
	struct got *g = arg;

	for (size_t i = 0; i < row->n_frames; i++)
		flat[i] = *row->frames[i];
	buf_printf(&b, "%s%s%s: ", row->ns ?: "", row->ns ? "/" : "", row->app_service ?: "(none)");
	profile_stack_render(&row->head, flat, row->n_frames, &b);
	if (g->n < ARRAY_SIZE(g->rows)) {
		snprintf(g->rows[g->n].text, sizeof(g->rows[0].text), "%s", b.data);
		g->rows[g->n].value = row->value;
		g->rows[g->n].n = row->n_samples;
	}
	g->n++;
	g->sum += row->value;
	return 0;
}

static inline void got_done(struct got *g)
{
	store_summary_done(&g->summary);
}

/* Reads what sel selects into g, in place of its old rows. */
static inline void read_rows(struct store *s, const struct selection *sel, struct got *g)
{
	struct field_error e = {0};

	got_done(g);
	memset(g, 0, sizeof(*g));
	if (store_read(s, sel->scope ?: &store_scope_all, sel, take, g, &g->summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
}

/* Reads what the predicate selects into g, and frees the predicate. */
static inline void read_where(struct store *s, struct predicate *where, struct got *g)
{
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 10,
				.time_end_s = T0 + 1000,
				.where = where,
				.max_time_ns = 600 * NSEC_PER_SEC /* long, for a busy machine */};

	read_rows(s, &sel, g);
	store_predicate_free(where);
}

static inline int64_t value_where(struct store *s, struct predicate *where)
{
	_cleanup_(got_done) struct got g = {0};

	read_where(s, where, &g);
	return g.sum;
}

struct values {
	char text[512];
};

static inline int take_value(const struct store_choice *c, const char *value, uint64_t n, void *arg)
{
	struct values *v = arg;
	size_t at = strlen(v->text);

	(void)c;
	snprintf(v->text + at, sizeof(v->text) - at, "%s=%lu ", value, n);
	return 0;
}

/* ---- snapshots ---- */

/*
 * A row of a snapshot of the memory in use by a process: the function at the end of the stack, and
 * bytes. leaf NULL ends the list.
 */
struct live {
	const char *leaf;
	int64_t bytes;
};

static inline struct profile *add_snapshot(struct batch *b, const char *app, uint32_t pid,
					   int64_t end_s, const struct live *live)
{
	_cleanup_free_ char *id = xasprintf("%s/%u/%lld", app, pid, (long long)end_s);
	struct profile *p = add_profile(b, id, app, pid, "app", end_s);

	p->event = EVENT_MEM_INUSE;
	p->process_start_ns = pid * NSEC_PER_SEC;
	for (; live->leaf; live++)
		add_sample(b, p, "worker", false, live->leaf, live->bytes);
	return p;
}

static inline void write_snapshot(struct store *s, const char *app, uint32_t pid, int64_t end_s,
				  const struct live *live)
{
	struct batch *b = profile_batch_new();

	add_snapshot(b, app, pid, end_s, live);
	write_batch(s, b, 1);
}

static inline int64_t live_until(struct store *s, int64_t end_s, size_t want_rows)
{
	struct selection sel = {
		.event = EVENT_MEM_INUSE, .time_start_s = T0 - 10, .time_end_s = end_s};
	_cleanup_(got_done) struct got g = {0};

	read_rows(s, &sel, &g);
	assert_int_equal(g.n, want_rows);
	return g.sum;
}
