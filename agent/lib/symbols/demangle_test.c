/* SPDX-License-Identifier: Apache-2.0 */
/* Names as compilers mangle them and as they are shown; and as an attacker would. */
#include "lib/symbols/symbols.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static void mangled_names(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"_ZN3foo3barEi", "foo::bar(int)"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi",
		 "std::vector<int, std::allocator<int> >::push_back(int const&)"},
		{"_ZN5clang4Sema5parseEv.llvm.1234567", "clang::Sema::parse()"},
		{"_ZL6helperv.cold", "helper() [clone .cold]"},
		{"_GLOBAL__sub_I_main", NULL},
		/* Rust, legacy: the hash stays, as DeepFlow shows it. */
		{"_ZN14deepflow_agent14flow_generator8flow_map7FlowMap18inject_meta_"
		 "packet17h553351a860254660E",
		 "deepflow_agent::flow_generator::flow_map::FlowMap::inject_meta_packet::"
		 "h553351a860254660"},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.987",
		 "core::fmt::Formatter::pad::h0123456789abcdef"},
		{"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
		 "3bar17h930b740aa94f1d3aE",
		 "<Test + 'static as foo::Bar<Test>>::bar::h930b740aa94f1d3a"},
		/* Rust, v0 */
		{"_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"},
		{"_RNvMs_CsHhX5_3barNtB4_3Foo3new", "<bar::Foo>::new"},
		{"main", NULL},
		{"_start", NULL},
		{"_Z", NULL},
		{"_ZN", NULL},
		{"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *out = demangle(cases[i].in);

		if (!cases[i].out) {
			if (out)
				print_message("%s -> %s\n", cases[i].in, out);
			assert_null(out);
			continue;
		}
		assert_non_null(out);
		assert_string_equal(out, cases[i].out);
	}
}

/* f(pair<int, int>, pair<all before, all before>, ...): each parameter is twice as long. */
static char *nested_pairs(unsigned n)
{
	static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	struct buf name;

	buf_init(&name, 0);
	buf_puts(&name, "_Z1fSt4pairIiiE");
	for (unsigned i = 0; i < n; i++)
		buf_printf(&name, "S_IS%c_S%c_E", letters[i], letters[i]);
	return buf_steal(&name);
}

static void names_that_explode_stay_mangled(void **state)
{
	_cleanup_free_ char *two = nested_pairs(1), *billion = nested_pairs(30);
	_cleanup_free_ char *longest = xmalloc(5001);
	_cleanup_free_ char *out = demangle(two);

	(void)state;
	assert_string_equal(out, "f(std::pair<int, int>, std::pair<std::pair<int, int>, "
				 "std::pair<int, int> >)");
	assert_null(demangle(billion));
	memset(longest, 'a', 5000);
	memcpy(longest, "_Z4990", 6);
	longest[5000] = '\0';
	assert_null(demangle(longest));
}

/* f(int[sizeof tup<p<int, int>, p<all before, all before>, ...>], <the last>...): twice the steps each
 * time to look for a pack, and nothing said. */
static char *packs_of_pairs(unsigned n)
{
	static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	struct buf name;

	buf_init(&name, 0);
	buf_puts(&name, "_Z1fAst3TupI1PIiiE");
	for (unsigned i = 0; i < n; i++)
		buf_printf(&name, "S0_IS%c_S%c_E", letters[i + 1], letters[i + 1]);
	buf_printf(&name, "E_DpS%c_", letters[n + 1]);
	return buf_steal(&name);
}

/* Twice the steps for each operator of conversion. */
static char *nested_conversions(unsigned n)
{
	struct buf name;

	buf_init(&name, 0);
	buf_puts(&name, "_ZN1Acv");
	for (unsigned i = 0; i < n; i++)
		buf_puts(&name, "T_I");
	buf_puts(&name, "i");
	for (unsigned i = 0; i < n; i++)
		buf_puts(&name, "E");
	buf_puts(&name, "IiEEv");
	return buf_steal(&name);
}

/* "_Z4096xxx...": with its head one more than there may be, then as many as there may be. */
static void longer_names_stay_mangled(void **state)
{
	struct counter *given_up = counter("podflame_names_mangled_total", "reason", "long_name");
	uint64_t before = counter_get(given_up);
	char name[4096 + 2];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	memcpy(name, "_Z4091", 6);
	assert_null(demangle(name));
	assert_int_equal(counter_get(given_up), before + 1);
	memcpy(name, "_Z4090", 6);
	name[4096] = '\0';
	free(demangle(name));
	name[0] = 'x'; /* no mangled name */
	assert_null(demangle(name));
	assert_int_equal(counter_get(given_up), before + 1);
}

/* Each would take years. */
static void names_that_take_long_stay_mangled(void **state)
{
	struct counter *slow = counter("podflame_names_mangled_total", "reason", "too_slow");
	_cleanup_free_ char *packs = packs_of_pairs(34), *conversions = nested_conversions(80);
	_cleanup_free_ char *few = packs_of_pairs(1), *plain = nested_conversions(1);
	_cleanup_free_ char *text = demangle(few), *cast = demangle(plain);
	uint64_t before = counter_get(slow);

	(void)state;
	assert_non_null(text);
	assert_string_equal(cast, "A::operator int<int><int>()");
	assert_null(demangle(packs));
	assert_null(demangle(conversions));
	/* The lifetimes of an impl's path, which is not shown, and of one that holds memory, too. */
	assert_null(demangle("_RMIC1aFGzzzzzzzzzz_EuEu"));
	assert_int_equal(counter_get(slow), before + 3);
	assert_null(demangle("_RMINvC1au8gdel_5qaFGzzzzzzzzzz_EuEu"));
	/* It leaves nothing behind that would end the next. */
	free(text);
	text = demangle("_ZN3foo3barEi");
	assert_string_equal(text, "foo::bar(int)");
}

static uint64_t bytes_in_use(void)
{
	return mallinfo2().uordblks;
}

/* (a::<punycode>, the same, ...): the text ends inside one, whose memory is libiberty's. */
static void long_names_with_punycode_leave_no_memory(void **state)
{
	struct buf name;
	uint64_t before;

	(void)state;
	buf_init(&name, 0);
	buf_puts(&name, "_RINvC1a1fTNtC1au999_");
	for (int i = 0; i < 999; i++)
		buf_puts(&name, "a");
	for (int i = 0; i < 100; i++)
		buf_puts(&name, "B8_");
	buf_puts(&name, "EE");
	assert_null(demangle(name.data));
	before = bytes_in_use();
	for (int i = 0; i < 100; i++)
		assert_null(demangle(name.data));
	assert_int_equal(bytes_in_use(), before);
	buf_done(&name);
}

static void text_is_clean(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"plain", "plain"},
		{"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5",
		 "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5"},
		{"a\nb\tc\x7f", "a?b?c?"},
		{"\xff\xc3", "??"},
		{"\xc0\xaf", "??"},	      /* overlong */
		{"\xed\xa0\x80", "???"},      /* surrogate */
		{"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
		{"\xe2\x82", "??"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *out = text_clean(cases[i].in);

		assert_string_equal(out, cases[i].out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mangled_names),
		cmocka_unit_test(names_that_explode_stay_mangled),
		cmocka_unit_test(longer_names_stay_mangled),
		cmocka_unit_test(names_that_take_long_stay_mangled),
		cmocka_unit_test(long_names_with_punycode_leave_no_memory),
		cmocka_unit_test(text_is_clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
