/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a mangled name give a text or a reason, within the limits. The same bytes give the
 * same result again, and a name leaves no state that changes the result of the next name. The
 * demanglers are built without instrumentation. So that libFuzzer still finds new inputs, the
 * shapes of the texts are counted as coverage.
 * Fuzzes: lib/symbols/demangle.c, lib/symbols/text.c
 */
#include "lib/base/fuzzinput.h"
#include "lib/symbols/demangle.h"

#include <ctype.h>

#define FEATURES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t features[FEATURES];

static unsigned shape(char c)
{
	return isalpha((unsigned char)c) ? 'a' : isdigit((unsigned char)c) ? '0' : (unsigned char)c;
}

static void tell_shapes(const char *text, size_t n)
{
	for (size_t i = 0; i + 2 < n; i++) {
		unsigned hash =
			shape(text[i]) * 31 * 31 + shape(text[i + 1]) * 31 + shape(text[i + 2]);

		features[hash % FEATURES] = 1;
	}
}

static void assert_shown(const char *name, const char *as)
{
	const char *text;

	check(elf_demangle(name, &text) == DEMANGLE_OK && streq(text, as));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *bytes = xstrndup((const char *)data, n);
	_cleanup_free_ char *name = is_mangled(bytes) ? xstrdup(bytes) : xasprintf("_Z%s", bytes);
	_cleanup_free_ char *first = NULL, *clean = NULL;
	const char *text = "";
	enum demangle_result result, again;

	/* called for each input, because libFuzzer sets the same timer between inputs */
	check(elf_demangle_begin() == 0);
	result = elf_demangle(name, &text);
	check(result < _DEMANGLE_RESULT_MAX);
	check(strlen(text) <= DEMANGLED_MAX && (result == DEMANGLE_OK) == !!*text);
	check(!strchr(text, '\1') || strchr(name, '\1'));
	tell_shapes(text, strlen(text));
	first = xstrdup(text);
	clean = elf_text_clean(first);
	check(strlen(clean) == strlen(first));
	text = "";
	again = elf_demangle(name, &text);
	check(result == DEMANGLE_TOO_SLOW || again == DEMANGLE_TOO_SLOW ||
	      (again == result && streq(text, first)));
	assert_shown("_ZN3foo3barEi", "foo::bar(int)");
	assert_shown("_ZN4shop5priceITkNS_6NumberEiEET_S1_", "int shop::price<int>(int)");
	return 0;
}
