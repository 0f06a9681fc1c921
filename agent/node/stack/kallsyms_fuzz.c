/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as /proc/kallsyms; and as a symbol's name, through demangling and cleaning.
 * Fuzzes: node/stack/kallsyms.c, lib/symbols/demangle.c, lib/symbols/text.c
 */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	_cleanup_free_ char *plain = demangle(text);
	_cleanup_free_ char *clean = text_clean(plain ? plain : text);
	_cleanup_free_ char *cleaner = text_clean(clean);
	_cleanup_free_ char *lines = xmemdup(data, n ? n : 1);
	struct kernel_symbols *k = kernel_symbols_parse(lines, n);
	const char *name, *module;
	uint64_t start;

	if (!streq(clean, cleaner))
		abort();
	for (uint64_t address = 0; address < UINT64_MAX >> 1; address = address * 3 + 1)
		if (kernel_symbols_find(k, ~address, &start, &name, &module) == 0 &&
		    (start > ~address || strlen(name) + strlen(module) > n + sizeof("[kernel]")))
			abort();
	kernel_symbols_free(k);
	return 0;
}
