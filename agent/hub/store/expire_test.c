/* SPDX-License-Identifier: Apache-2.0 */
/* Retention of a store that has far more to delete than there is time for: in slices, call after call. */
#include "hub/store/sqlite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define T0	      1700000000
#define N_PROFILES    17000
#define STACK_GRACE_S 3600 /* a stack's last second is exact to that */

static struct sqlite_store *open_store(uint64_t retention_ns, uint64_t max_bytes)
{
	const struct store_config c = {
		.path = ":memory:", .retention_ns = retention_ns, .max_bytes = max_bytes};
	struct field_error e;
	void *s;

	if (sqlite_sink.open(&c, &s, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return s;
}

/* One a second, each with a stack of its own of value 1. */
static void fill(struct sqlite_store *s)
{
	struct batch *b = batch_new();
	size_t n_new;

	for (unsigned i = 0; i < N_PROFILES; i++) {
		struct profile *p = batch_profile(b);
		struct profile_sample *sample = profile_add(b, p);
		char name[32];
		const char *parts[] = {name};
		struct frame f = {.kind = FRAME_APP, .name = name, .module = "/bin/web"};

		snprintf(name, sizeof(name), "function %u", i);
		profile_id_make(parts, 1, p->id);
		p->end_ns = (T0 + i) * NSEC_PER_SEC;
		p->start_ns = p->end_ns - NSEC_PER_SEC;
		p->app_service = "web";
		p->process_id = 1;
		sample->cpu = -1;
		sample->value = sample->n_samples = 1;
		assert_int_equal(batch_stack(b, &f, 1, &sample->stack), 0);
	}
	assert_int_equal(sqlite_write(s, b, &n_new), 0);
	assert_int_equal(n_new, N_PROFILES);
	batch_free(b);
}

static int add_value(const struct store_row *row, void *arg)
{
	assert_non_null(row->frames[0]->name);
	*(uint64_t *)arg += (uint64_t)row->value;
	return 0;
}

static uint64_t n_left(struct sqlite_store *s)
{
	const struct selection sel = {.time_start_s = 1, .time_end_s = T0 * 2LL};
	struct store_summary summary;
	struct field_error e;
	uint64_t n = 0;

	if (sqlite_read(s, &sel, add_value, &n, &summary, &e))
		fail_msg("%s: %s", e.path, e.reason);
	store_summary_done(&summary);
	return n;
}

/* Without any time each call is one slice: it ends, what is left is whole, and the calls come to an end. */
static void slices(struct sqlite_store *s, uint64_t now_s, uint64_t most_left)
{
	struct store_stats stats;
	uint64_t left = N_PROFILES;
	unsigned n_calls = 0;
	int64_t n = 0;

	s->expire_ns = 0;
	for (; left > most_left; n_calls++) {
		assert_int_equal(sqlite_expire(s, now_s * NSEC_PER_SEC), 0);
		assert_true(n_left(s) < left);
		left = n_left(s);
		sqlite_stats(s, &stats);
		assert_int_equal(stats.n_expired, N_PROFILES - left);
	}
	assert_true(n_calls > 1);
	/* nothing is due any more: the names that nothing refers to go, what has its hour stays */
	assert_int_equal(sqlite_expire(s, now_s * NSEC_PER_SEC), 0);
	assert_int_equal(sq_int(s->writer, "SELECT COUNT(*) FROM frames", &n), 0);
	assert_true((uint64_t)n <= left + STACK_GRACE_S + 1);
	sqlite_sink.close(s);
}

static void by_age(void **state)
{
	struct sqlite_store *s = open_store(100 * NSEC_PER_SEC, 0);

	(void)state;
	fill(s);
	slices(s, T0 + 10 * N_PROFILES, 0);
}

static void by_size(void **state)
{
	struct sqlite_store *s = open_store(0, 128 << 10);

	(void)state;
	fill(s);
	slices(s, T0, N_PROFILES / 2);
}

/* With time one call does all, and nothing of the dictionaries stays but what has its hour. */
static void all_at_once(void **state)
{
	struct sqlite_store *s = open_store(100 * NSEC_PER_SEC, 0);
	int64_t n = 1;

	(void)state;
	fill(s);
	assert_int_equal(sqlite_expire(s, (T0 + 10 * N_PROFILES) * NSEC_PER_SEC), 0);
	assert_int_equal(n_left(s), 0);
	assert_int_equal(sq_int(s->writer, "SELECT COUNT(*) FROM frames", &n), 0);
	assert_int_equal(n, 0);
	sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_age),
		cmocka_unit_test(by_size),
		cmocka_unit_test(all_at_once),
	};

	return cmocka_run_group_tests_name("expire", tests, NULL, NULL);
}
