/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/regexp.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static bool takes(const char *pattern)
{
	struct field_error e;

	return regexp_check(pattern, &e) == 0;
}

static int matches(const char *pattern, const char *text)
{
	struct field_error e;
	struct regexp *x;
	int r;

	assert_int_equal(regexp_new(pattern, &x, &e), 0);
	r = regexp_match(x, text);
	regexp_free(x);
	return r;
}

static void syntax(void **state)
{
	char many[REGEXP_MAX_BYTES + 2];

	(void)state;
	assert_int_equal(matches("^api-\\d+$", "api-17"), 1);
	assert_int_equal(matches("^api-\\d+$", "api-17\n"), 0);
	assert_int_equal(matches("b|^c", "abc"), 1);
	assert_int_equal(matches("^b|c$", "abcd"), 0);
	assert_int_equal(matches("a.c", "xa\nc"), 1);
	assert_int_equal(matches("^.$", "\xc3\xa9"), 1);
	assert_int_equal(matches("x", "\xff\xfex"), 1);
	assert_int_equal(matches("(?i)API", "api"), 1);
	assert_int_equal(matches("[[:digit:]]{2}", "a1b22"), 1);
	assert_int_equal(matches("", ""), 1);
	assert_true(takes("^[]a{9999}]\\d+$"));
	assert_true(takes("^([a-z]+-)+[0-9a-f]{8,10}-.+$|^(a|b)*x?$"));
	assert_false(takes("(a"));
	assert_false(takes("a)|(b"));
	assert_false(takes("(*UTF)a")); /* verbs of PCRE2 are not allowed */
	assert_false(takes("a++++"));
	assert_false(takes("(a)\\1"));
	assert_false(takes("((a{99}){99}){99}"));
	assert_false(takes("\xff"));
	memset(many, '(', sizeof(many));
	many[400] = '\0';
	assert_false(takes(many));
	memset(many, 'a', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	assert_false(takes(many));
	many[sizeof(many) - 2] = '\0';
	assert_true(takes(many));
}

/*
 * The pattern has the same meaning alone and in the larger pattern that compile_searching() makes
 * of it.
 */
static void what_is_put_around_a_pattern_changes_nothing(void **state)
{
	(void)state;
	assert_int_equal(matches("\\Qa.b", "xa.b"), 1);
	assert_int_equal(matches("\\Qa.b", "xaxb"), 0);
	assert_int_equal(matches("(?x) a b # c", "xab"), 1);
	assert_int_equal(matches("(?x) a b # c", "a b"), 0);
	assert_int_equal(matches("(?i)a|b", "B"), 1);
	assert_int_equal(matches("^a|b", "xa"), 0);
	assert_int_equal(matches("\\(*\\(\\*Server\\)", "net/http.(*Server).Serve"), 1);
	assert_int_equal(matches("[*(]x", "(x"), 1);
	assert_false(takes("foo(*SKIP)(*F)|bar"));
	/* "\c\" is a control character, and (*SKIP) after it is a verb */
	assert_false(takes("\\c\\(*SKIP)b|a"));
	assert_false(takes("a(?R)?b"));
	assert_false(takes("a(?0)?b"));
	assert_false(takes("a\\g<0>?b"));
}

/*
 * A match with too many steps fails soon, with an error (not "no match"). glibc's regcomp() needs
 * hours for the first two patterns, and all memory for the third.
 */
static void patterns_take_bounded_time(void **state)
{
	char text[4097];

	(void)state;
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(matches("^((((a*)+)+)+)+$", "ab"), 0);
	assert_int_equal(matches("((\\b|a?)(\\b|a?)){300}$", "a"), 1);
	assert_false(takes("a++++++++++++++++++++++++++++++++++++++++++"));
	assert_int_equal(matches("(a+)+\\d", text), -ELOOP);
	assert_int_equal(matches("((a?){900})\\d", text), -ELOOP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(syntax),
		cmocka_unit_test(what_is_put_around_a_pattern_changes_nothing),
		cmocka_unit_test(patterns_take_bounded_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
