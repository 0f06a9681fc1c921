/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the configuration that would have no effect, or that contradict each other. */
#include "hub/stores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* local: of `podflame local` */
static void assert_refused(const char *text, bool local, const char *path, const char *why)
{
	struct config conf;
	struct field_error e = {0};
	struct hub_stores_config c = {.conf = &conf, .local = local};
	struct hub_stores s;

	if (conf_parse("f", text, strlen(text), &conf, NULL, &e))
		fail_msg("%s: %s", e.path, e.reason);
	assert_int_equal(hub_stores_open(NULL, &c, &s, &e), -EINVAL);
	assert_string_equal(e.path, path);
	assert_non_null(strstr(e.reason, why));
	hub_stores_close(&s);
	conf_done(&conf);
}

static void keys_without_effect_are_refused(void **state)
{
	static const struct {
		const char *text, *path, *why;
	} wrong[] = {
		{"store: {url: 'https://h'}", "store.url", "clickhouse and otlp"},
		{"store: {ca_file: a}", "store.ca_file", "clickhouse and otlp"},
		{"store: {token_file: t}", "store.token_file", "store.kind otlp"},
		{"store: {kind: clickhouse, url: 'https://h', token_file: t}", "store.token_file",
		 "store.kind otlp"},
		{"store: {clickhouse: {user: u}}", "store.clickhouse.user", "clickhouse"},
		{"store: {kind: otlp, url: 'https://h', clickhouse: {password_file: p}}",
		 "store.clickhouse.password_file", "clickhouse"},
		{"store: {clickhouse: {cluster: c}}", "store.clickhouse.cluster", "clickhouse"},
		{"store: {clickhouse: {storage_policy: p}}", "store.clickhouse.storage_policy",
		 "clickhouse"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_refused(wrong[i].text, false, wrong[i].path, wrong[i].why);
}

static void a_hub_that_forwards_is_alone_in_that(void **state)
{
	static const char otlp[] = "store: {kind: otlp, url: 'https://h'}",
			  clusters[] = "store: {kind: otlp, url: 'https://h'}\n"
				       "clusters: {file: f}";

	(void)state;
	assert_refused(clusters, false, "clusters.file", "at the central hub");
	assert_refused(otlp, true, "store.kind", "`podflame hub` only");
}

/* The configuration has a list of the events; it must have all of them. */
static void each_event_may_have_a_retention(void **state)
{
	(void)state;
	for (enum event event = 0; event < _EVENT_MAX; event++) {
		_cleanup_free_ char *text = xasprintf("store: {event_retention: {%s: 1h}}",
						      profile_event_info(event)->name);
		struct store_config c;
		struct config conf;
		struct field_error e = {0};

		if (conf_parse("f", text, strlen(text), &conf, NULL, &e))
			fail_msg("%s: %s", e.path, e.reason);
		c = hub_store_config(&conf);
		assert_int_equal(c.n_event_retention, 1);
		assert_string_equal(c.event_retention[0].name, profile_event_info(event)->name);
		assert_int_equal(c.event_retention[0].ns, 3600 * NSEC_PER_SEC);
		conf_done(&conf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_without_effect_are_refused),
		cmocka_unit_test(each_event_may_have_a_retention),
		cmocka_unit_test(a_hub_that_forwards_is_alone_in_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
