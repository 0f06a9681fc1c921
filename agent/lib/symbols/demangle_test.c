/* SPDX-License-Identifier: Apache-2.0 */
/* Names as compilers mangle them, with the text that podflame shows for each, and hostile names. */
#include "lib/symbols/demangle.c" /* for the arena, which is private to that file */

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

/* Returns the demangled text; NULL: the name stays mangled. */
static const char *shown(const char *name)
{
	const char *text = NULL;

	return elf_demangle(name, &text) == DEMANGLE_OK ? text : NULL;
}

static enum demangle_result result_of(const char *name)
{
	const char *text;

	return elf_demangle(name, &text);
}

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
		{"_Z1fv.part.0.cold", "f() [clone .part.0] [clone .cold]"},
		{"_GLOBAL__sub_I_main", NULL},
		/* Names that only libc++abi reads, with endings that compilers add to them. */
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_", "int shop::price<int>(int)"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.resume",
		 "int shop::price<int>(int) [clone .resume]"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.part.0.cold.1",
		 "int shop::price<int>(int) [clone .part.0] [clone .cold.1]"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.__uniq.12345",
		 "int shop::price<int>(int) [clone .__uniq.12345]"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.cold.llvm.12345",
		 "int shop::price<int>(int) [clone .cold]"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_7A.Frame.actor",
		 "int shop::price<int>(A.Frame) [clone .actor]"},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.Other", NULL},
		{"_ZN4shop5priceITkNS_6NumberEiEET_S1_.", NULL},
		/* Names that libc++abi does not read. */
		{"_ZNK4absl4CordcvNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEEv",
		 "absl::Cord::operator std::__cxx11::basic_string<char, std::char_traits<char>, "
		 "std::allocator<char> >() const"},
		{"_ZZN4shop7lambdasEiENK3$_0clIiEEDaT_",
		 "auto shop::lambdas(int)::$_0::operator()<int>(int) const"},
		/* Rust, legacy: the text keeps the hash, as in DeepFlow. */
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
		/* Neither demangler knows which types the parameters stand for. */
		{"_ZN4shop3BoxIiE6memberITkSt14convertible_toIT_EiEEiS4_Q6NumberIS4_E",
		 "int shop::Box<int>::member<int>(T) requires Number<T>"},
		{"_ZZN4shop7lambdasEiENH3$_3clIS0_EEiT_i",
		 "int shop::lambdas(int)::$_3::operator()<$_3>(this T, int)"},
		{"_ZZ1giENK1A1hITkSt7same_asIT_EiiEEvS2_T0_.resume",
		 "void g(int)::A::h<int, int>(T, T0) const [clone .resume]"},
		{"_ZZ1giENK5AOOT_1hITkSt7same_asIT_EiEEvS2_", NULL},
		{"_ZN1A3fooITkSt7same_asIT_EiEEv5T_bar", NULL},
		{"_ZNK4shop4ConvcvSt6vectorIT_SaIS2_EEIiEEv", NULL},
		{"main", NULL},
		{"_start", NULL},
		{"_Z", NULL},
		{"_ZN", NULL},
		{"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *out = shown(cases[i].in);

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

/* Demangles the names of testdata/names.tsv. The head of that file names their sources. */
static void real_names(void **state)
{
	_cleanup_free_ char *table = NULL;
	size_t n_names = 0, n_wrong = 0;
	char *save;

	(void)state;
	assert_int_equal(
		file_read(AT_FDCWD, "agent/lib/symbols/testdata/names.tsv", 1 << 20, &table, NULL),
		0);
	for (char *line = strtok_r(table, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *tab = strchr(line, '\t');
		const char *text;

		if (*line == '#')
			continue;
		assert_non_null(tab);
		*tab = '\0';
		text = shown(line);
		if (!text || !streq(text, tab + 1)) {
			print_message("%s is\n%s, not\n%s\n", line, text ? text : "-", tab + 1);
			n_wrong++;
		}
		n_names++;
	}
	assert_in_range(n_names, 500, 10000);
	assert_int_equal(n_wrong, 0);
}

/*
 * Makes f(pair<int, int>, pair<P, P>, ...), where P is the previous parameter: each one is twice as
 * long.
 */
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

/* A name of 255 bytes whose text would have more than a gigabyte. */
static void names_that_explode_stay_mangled(void **state)
{
	_cleanup_free_ char *two = nested_pairs(1), *billion = nested_pairs(30);
	/* As `billion`, with a constraint, which only libc++abi reads. */
	_cleanup_free_ char *constrained = xasprintf("_Z1gITk1CiEvT_%s", billion + strlen("_Z1f"));

	(void)state;
	assert_string_equal(shown(two), "f(std::pair<int, int>, std::pair<std::pair<int, int>, "
					"std::pair<int, int> >)");
	assert_int_equal(result_of(billion), DEMANGLE_TOO_LONG);
	assert_int_equal(result_of(constrained), DEMANGLE_TOO_LONG);
}

/*
 * Makes f(int[sizeof tup<p<int, int>, p<P, P>, ...>], <the last>...), where P is the previous
 * argument: each one doubles the steps of the search for a parameter pack, and the text stays
 * short.
 */
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

/* Makes a name of nested conversion operators. Each doubles the steps. */
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

/* Without a limit, each name would take years. */
static void names_that_take_long_stay_mangled(void **state)
{
	_cleanup_free_ char *packs = packs_of_pairs(34), *conversions = nested_conversions(80);
	_cleanup_free_ char *few = packs_of_pairs(1), *plain = nested_conversions(1);

	(void)state;
	assert_non_null(shown(few));
	assert_string_equal(shown(plain), "A::operator int<int><int>()");
	assert_int_equal(result_of(packs), DEMANGLE_TOO_SLOW);
	assert_int_equal(result_of(conversions), DEMANGLE_TOO_SLOW);
	/*
	 * Names with a large number of lifetimes, in the path of an impl, which is not shown. The
	 * second also has a punycode identifier, which needs memory.
	 */
	assert_int_equal(result_of("_RMIC1aFGzzzzzzzzzz_EuEu"), DEMANGLE_TOO_SLOW);
	assert_int_equal(result_of("_RMINvC1au8gdel_5qaFGzzzzzzzzzz_EuEu"), DEMANGLE_TOO_SLOW);
	/* A stopped name leaves no state that would harm the next one. */
	assert_string_equal(shown("_ZN3foo3barEi"), "foo::bar(int)");
}

/* Makes a name: head, n times `begin`, inner, n times `end`. */
static char *nested(const char *head, const char *begin, const char *inner, const char *end,
		    unsigned n)
{
	struct buf name;

	buf_init(&name, 0);
	buf_puts(&name, head);
	for (unsigned i = 0; i < n; i++)
		buf_puts(&name, begin);
	buf_puts(&name, inner);
	for (unsigned i = 0; i < n; i++)
		buf_puts(&name, end);
	return buf_steal(&name);
}

/*
 * libiberty limits its depth, but libc++abi does not, so podflame limits the stack of libc++abi.
 * Names that compilers write need less stack.
 */
static void names_that_nest_deeply_stay_mangled(void **state)
{
	_cleanup_free_ char *pointers = nested("_Z1fITk1CiEv", "P", "i", "", 4000);
	_cleanup_free_ char *arguments = nested("_Z1fITk1CiEv", "1AI", "i", "E", 1000);
	_cleanup_free_ char *local = nested("_Z", "Z", "1fvE1x", "", 4000);

	(void)state;
	/* sets the handler of SIGSEGV again, because cmocka has replaced it */
	assert_int_equal(elf_demangle_begin(), 0);
	assert_non_null(shown(pointers));
	assert_non_null(shown(arguments));
	assert_int_equal(result_of(local), DEMANGLE_TOO_DEEP);
	assert_string_equal(shown("_ZN4shop5priceITkNS_6NumberEiEET_S1_"),
			    "int shop::price<int>(int)");
}

#ifndef __SANITIZE_ADDRESS__ /* with ASan, stack frames are not on this stack */
#define ROOM 512	     /* bytes that are left; the frame of a signal handler needs more */

static uint64_t stack_end(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t end = 0;
	char line[512];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[stack]"))
			assert_int_equal(sscanf(line, "%*x-%" SCNx64, &end), 1);
	fclose(maps);
	assert_true(end > STACK_BYTES);
	return end - STACK_BYTES;
}

__attribute__((noinline)) static void work_above(uint64_t end)
{
	volatile char *p = __builtin_alloca((uintptr_t)__builtin_frame_address(0) - end - ROOM);

	for (;;)
		p[0]++;
}

static void the_timer_stops_a_name_that_has_filled_the_stack(void **state)
{
	uint64_t end = stack_end();
	enum demangle_result why;

	(void)state;
	assert_int_equal(elf_demangle_begin(), 0);
	work.ticks = 0;
	work.stack = __builtin_frame_address(0);
	why = sigsetjmp(work.stop, 0);
	if (why == DEMANGLE_OK) {
		work.running = 1;
		work_above(end);
	}
	assert_int_equal(why, DEMANGLE_TOO_SLOW);
}
#endif

/* (a::<punycode>, the same again, ...): libiberty allocates memory for each. */
static void long_names_with_punycode_stay_mangled(void **state)
{
	_cleanup_buf_ struct buf name;

	(void)state;
	buf_init(&name, 0);
	buf_puts(&name, "_RINvC1a1fTNtC1au999_");
	for (int i = 0; i < 999; i++)
		buf_puts(&name, "a");
	for (int i = 0; i < 100; i++)
		buf_puts(&name, "B8_");
	buf_puts(&name, "EE");
	for (int i = 0; i < 100; i++)
		assert_int_equal(result_of(name.data), DEMANGLE_TOO_BIG);
	assert_string_equal(shown("_RNvC1au8gdel_5qa"), "a::gödel");
}

static enum demangle_result take(size_t n)
{
	enum demangle_result why = sigsetjmp(work.stop, 0);
	const char *p;

	if (why)
		return why;
	p = elf_demangle_malloc(n);
	assert_true(p >= work.arena && p + n <= work.arena + ARENA_BYTES);
	return DEMANGLE_OK;
}

/* Allocates until the arena is full, and then once more. All memory must be inside the arena. */
static void nothing_is_given_behind_the_arena(void **state)
{
	(void)state;
	for (size_t n = 1; n < 5000; n += 7) {
		work.arena_used = 0;
		while (take(n) == DEMANGLE_OK)
			;
		for (size_t k = 0; k < 40; k++)
			take(k);
		assert_int_equal(take(n), DEMANGLE_TOO_BIG);
		assert_int_equal(take(SIZE_MAX), DEMANGLE_TOO_BIG);
	}
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
		{"\xc0\xaf", "??"},	      /* an overlong encoding */
		{"\xed\xa0\x80", "???"},      /* a surrogate */
		{"\xf4\x90\x80\x80", "????"}, /* a code point above U+10FFFF */
		{"\xe2\x82", "??"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *out = elf_text_clean(cases[i].in);

		assert_string_equal(out, cases[i].out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mangled_names),
		cmocka_unit_test(real_names),
		cmocka_unit_test(names_that_explode_stay_mangled),
		cmocka_unit_test(names_that_take_long_stay_mangled),
		cmocka_unit_test(names_that_nest_deeply_stay_mangled),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(the_timer_stops_a_name_that_has_filled_the_stack),
#endif
		cmocka_unit_test(long_names_with_punycode_stay_mangled),
		cmocka_unit_test(nothing_is_given_behind_the_arena),
		cmocka_unit_test(text_is_clean),
	};

	return elf_demangle_begin() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
