/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the configuration that do not go together: the hub does not start, and names the key. */
#include "hub/hub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/base/testdir.h"

static void test_keys_of_the_central_hub(void **state)
{
	static const struct {
		const char *text; /* of the configuration, below `store` */
		bool local;
		const char *key, *reason;
	} cases[] = {
		{"kind: otlp", false, "store.url", "the address of the central hub must be there"},
		{"kind: otlp\n  url: http://hub.example", false, "store.url",
		 "must begin with https://"},
		{"kind: otlp\n  url: https://hub.example", true, "store.kind",
		 "for `podflame hub` only"},
		{"url: https://hub.example", false, "store.url",
		 "only for store.kind clickhouse and otlp"},
		{"kind: \"null\"\n  ca_file: /ca.crt", false, "store.ca_file",
		 "only for store.kind clickhouse and otlp"},
		{"token_file: /token", true, "store.token_file", "only for store.kind otlp"},
	};
	char dir[TESTDIR_BYTES];
	struct loop *l;

	(void)state;
	assert_int_equal(testdir_make(dir), 0);
	assert_int_equal(loop_new(&l), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *text =
			xasprintf("data_dir: %s\nstore:\n  %s\n", dir, cases[i].text);
		struct field_error e = {0};
		struct config c;
		const struct hub_config hc = {.conf = &c, .local = cases[i].local};
		struct hub *h;

		if (conf_parse("test", text, strlen(text), &c, NULL, &e))
			fail_msg("%s: %s", e.path, e.reason);
		assert_int_equal(hub_new(l, &hc, &h, &e), -EINVAL);
		assert_string_equal(e.path, cases[i].key);
		if (!strstr(e.reason, cases[i].reason))
			fail_msg("%s: %s", cases[i].key, e.reason);
		conf_done(&c);
	}
	loop_free(l);
	assert_int_equal(testdir_remove(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_of_the_central_hub),
	};

	return cmocka_run_group_tests_name("hub", tests, NULL, NULL);
}
