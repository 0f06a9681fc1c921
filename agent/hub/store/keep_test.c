/* SPDX-License-Identifier: Apache-2.0 */
/* Events that are kept for less time than others, in SQLite, if a call has no time for all. */
#include "hub/store/teststore.h"

static struct sqlite_store *open_sink(void)
{
	static const struct named_duration events[] = {{"off-cpu", 100 * NSEC_PER_SEC}};
	const struct store_config c = {.path = ":memory:",
				       .retention_ns = 5000 * NSEC_PER_SEC,
				       .event_retention = events,
				       .n_event_retention = ARRAY_SIZE(events)};
	struct field_error e = {0};
	void *sink;

	if (store_sqlite_sink.open(&c, &sink, &e))
		fail_msg("%s: %s", e.path, e.reason);
	return sink;
}

static void write_off_cpu(struct sqlite_store *s)
{
	struct batch *b = profile_batch_new();
	struct profile *p = add_profile(b, "one", "api", 10, "app", T0);
	size_t n_new;

	p->event = EVENT_OFF_CPU;
	add_sample(b, p, "worker", false, "write", 10);
	assert_int_equal(store_sqlite_write(s, b, &n_new), 0);
	profile_batch_free(b);
}

static int64_t n_profiles(struct sqlite_store *s)
{
	int64_t n = -1;

	assert_int_equal(store_sq_int(s->writer, "SELECT count(*) FROM profiles", &n), 0);
	return n;
}

/* What is due, and not looked at before the deadline, is left: the sweep waits for it. */
static void a_rule_that_was_not_looked_at(void **state)
{
	struct sqlite_store *s = open_sink();
	uint64_t expire_ns = s->expire_ns;

	(void)state;
	write_off_cpu(s);
	s->unswept = true;
	s->expire_ns = 0;
	assert_int_equal(store_sqlite_expire(s, (T0 + 1000) * NSEC_PER_SEC), 0);
	assert_int_equal(n_profiles(s), 1);
	assert_true(s->unswept);
	s->expire_ns = expire_ns;
	assert_int_equal(store_sqlite_expire(s, (T0 + 1000) * NSEC_PER_SEC), 0);
	assert_int_equal(n_profiles(s), 0);
	assert_false(s->unswept);
	store_sqlite_sink.close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_rule_that_was_not_looked_at)};

	return cmocka_run_group_tests_name("keep", tests, NULL, NULL);
}
