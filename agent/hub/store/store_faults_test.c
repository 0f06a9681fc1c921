/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk or memory fails while SQLite uses it. A batch must be stored once or not at all, and the
 * store must work afterwards.
 */
#include "hub/store/store.h"
#include "lib/base/fault.h"

#include <setjmp.h>
#include <cmocka.h>

#include "lib/base/testdir.h"

#define T0	1700000000
#define N_VALUE 30

static char dir[TESTDIR_BYTES], data_dir[96];
static unsigned turn; /* counts the batches, so that each run writes a new one */

static struct batch *window(unsigned n)
{
	struct frame f[] = {{.kind = FRAME_APP, .name = "main", .module = "/bin/x"},
			    {.kind = FRAME_LIBRARY, .name = "write", .module = "/lib/libc.so"}};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s = profile_add(b, p);
	_cleanup_free_ char *text = xasprintf("%u", n);
	const char *id = text;

	profile_id_make(&id, 1, p->id);
	p->event = EVENT_ON_CPU;
	p->end_ns = T0 * NSEC_PER_SEC;
	p->start_ns = p->end_ns - 10 * NSEC_PER_SEC;
	p->app_service = profile_batch_str(b, text);
	p->process_id = 10;
	profile_tag(b, p, "pod_ns", "app");
	s->thread_comm = profile_batch_str(b, "worker");
	s->cpu = -1;
	s->value = N_VALUE;
	s->n_samples = 3;
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
	return b;
}

static int open_store(struct store **ret)
{
	struct store_config c = {.kind = "sqlite", .path = data_dir};
	struct field_error e = {0};
	int r = store_open(&c, ret, &e);

	assert_true(!r == !e.reason[0]);
	return r;
}

static int add_value(const struct store_row *row, void *arg)
{
	*(int64_t *)arg += row->value;
	return 0;
}

/* The value of batch n in the store, or -errno. */
static int64_t value_of(struct store *s, unsigned n)
{
	_cleanup_free_ char *app = xasprintf("%u", n);
	struct selection sel = {.event = EVENT_ON_CPU,
				.time_start_s = T0 - 100,
				.time_end_s = T0 + 100,
				.app_services = &app,
				.n_app_services = 1};
	struct store_summary summary = {0};
	int64_t value = 0;
	int r = store_read(s, &store_scope_all, &sel, add_value, &value, &summary, NULL);

	store_summary_done(&summary);
	return r ? r : value;
}

static struct {
	unsigned n;
	bool stored; /* the writer returned success */
} last;

static struct batch *next;

static void make_next(void *arg)
{
	(void)arg;
	last.n = ++turn;
	last.stored = false;
	profile_batch_free(next);
	next = window(last.n);
}

static int write_run(void *arg)
{
	struct store *s = NULL;
	size_t n_new = 99;
	int r = open_store(&s);

	(void)arg;
	if (r) {
		assert_null(s);
		return r;
	}
	r = store_write(s, next, &n_new);
	last.stored = r == 0;
	if (r)
		assert_int_equal(n_new, 99);
	else
		assert_int_equal(n_new, 1);
	store_close(s);
	return r;
}

/*
 * A new store reads the file. It must have the whole batch if the writer returned success, else all
 * of it or nothing. Writing the batch again makes it complete.
 */
static void write_check(void *arg)
{
	struct store *s = NULL;
	struct batch *b = window(last.n);
	int64_t value;
	size_t n_new;

	(void)arg;
	assert_int_equal(open_store(&s), 0);
	value = value_of(s, last.n);
	if (last.stored)
		assert_int_equal(value, N_VALUE);
	else
		assert_true(value == 0 || value == N_VALUE);
	assert_int_equal(store_write(s, b, &n_new), 0);
	assert_int_equal(n_new, value ? 0 : 1);
	assert_int_equal(value_of(s, last.n), N_VALUE);
	/* a read that failed is no damage, so no file was renamed */
	assert_int_equal(value_of(s, 1), N_VALUE);
	profile_batch_free(b);
	store_close(s);
}

/* The store that stays open after the fault. */
static struct store *open_one;

static int write_on(void *arg)
{
	size_t n_new = 99;
	int r = store_write(open_one, next, &n_new);

	(void)arg;
	assert_int_equal(n_new, r ? 99 : 1);
	last.stored = !r;
	return r;
}

static void still_there(void *arg)
{
	int64_t value = value_of(open_one, last.n);

	(void)arg;
	if (last.stored)
		assert_int_equal(value, N_VALUE);
	else
		assert_true(value == 0 || value == N_VALUE);
}

static int read_run(void *arg)
{
	int64_t value = value_of(open_one, 1);

	(void)arg;
	if (value < 0)
		return (int)value;
	assert_int_equal(value, N_VALUE);
	return 0;
}

static int expire_run(void *arg)
{
	(void)arg;
	return store_expire(open_one, (T0 + 1) * NSEC_PER_SEC);
}

/* ---- a backup ---- */

static char backup_dir[96];

static void make_backup_dir(void *arg)
{
	(void)arg;
	testdir_remove(backup_dir);
	assert_int_equal(mkdir_parents(backup_dir, 0700), 0);
}

static int backup_run(void *arg)
{
	const struct store_config c = {.kind = "sqlite", .path = data_dir};
	struct field_error e = {0};
	int r = store_backup(&c, backup_dir, NULL, NULL, &e);

	(void)arg;
	assert_true(!r == !e.reason[0]);
	last.stored = !r;
	return r;
}

/* Whatever failed, the store is as it was; the copy is whole if the function says so. */
static void backup_check(void *arg)
{
	const struct store_config c = {.kind = "sqlite", .path = backup_dir};
	struct store *s = NULL;

	(void)arg;
	assert_int_equal(value_of(open_one, 1), N_VALUE);
	if (!last.stored)
		return;
	assert_int_equal(store_open(&c, &s, NULL), 0);
	assert_int_equal(value_of(s, 1), N_VALUE);
	store_close(s);
}

/* ---- a copy ---- */

static void ignore(const struct store_copied *c, void *arg)
{
	(void)c;
	(void)arg;
}

static int copy_run(void *arg)
{
	const struct store_config from = {.kind = "sqlite", .path = data_dir},
				  to = {.kind = "sqlite", .path = backup_dir};
	struct field_error e = {0};
	int r = store_copy(&from, &to, ignore, NULL, &e);

	(void)arg;
	assert_true(!r == !e.reason[0]);
	last.stored = !r;
	return r;
}

/*
 * Fails each read once. A failed read at the open is no damage, so no file is renamed. All reads
 * are tested, because it is quick.
 */
static void test_one_read_fails(void **state)
{
	unsigned n_failed = 0, n = 0;

	(void)state;
	make_next(NULL);
	assert_int_equal(write_run(NULL), 0);
	do {
		make_next(NULL);
		fault_arm(FAULT_READ, EIO, ++n, false);
		write_run(NULL);
		n_failed = fault_disarm();
		write_check(NULL);
	} while (n_failed);
	print_message("faults: store_open, store_write: each of %u reads failed\n", n - 1);
	assert_true(n > 5);
}

static void test_store(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "store_open, store_write",
		 .calls = FAULT_FILES | FAULT(MMAP),
		 .before = make_next,
		 .run = write_run,
		 .check = write_check,
		 .step = 5},
		{.name = "store_open, store_write: memory",
		 .calls = FAULT(MALLOC),
		 .before = make_next,
		 .run = write_run,
		 .check = write_check,
		 .step = 41},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

static void test_open_store(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "store_write",
		 .calls = FAULT_FILES | FAULT(MMAP) | FAULT(MALLOC),
		 .before = make_next,
		 .run = write_on,
		 .check = still_there,
		 .grows = true},
		{.name = "store_read",
		 .calls = FAULT_FILES | FAULT(MMAP) | FAULT(MALLOC),
		 .run = read_run,
		 .step = 3},
		{.name = "store_expire",
		 .calls = FAULT_FILES | FAULT(MMAP) | FAULT(MALLOC),
		 .run = expire_run,
		 .check = still_there},
		{.name = "store_backup",
		 .calls = FAULT_FILES | FAULT(MMAP),
		 .before = make_backup_dir,
		 .run = backup_run,
		 .check = backup_check,
		 .step = 41},
		{.name = "store_copy",
		 .calls = FAULT_FILES | FAULT(MMAP),
		 .before = make_backup_dir,
		 .run = copy_run,
		 .check = backup_check,
		 .step = 211},
	};
	struct batch *b = window(1);
	size_t n_new;

	(void)state;
	testdir_remove(data_dir);
	turn = 1;
	assert_int_equal(open_store(&open_one), 0);
	assert_int_equal(store_write(open_one, b, &n_new), 0);
	profile_batch_free(b);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
	next = profile_batch_free(next);
	store_close(open_one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_read_fails),
		cmocka_unit_test(test_store),
		cmocka_unit_test(test_open_store),
	};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(data_dir, sizeof(data_dir), "%s/data", dir);
	snprintf(backup_dir, sizeof(backup_dir), "%s/backup", dir);
	r = cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
