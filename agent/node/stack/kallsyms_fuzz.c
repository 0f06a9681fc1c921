/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as /proc/kallsyms: in memory and, if they are whole lines, as a file. Both must
 * give the same symbols. Also reads any bytes as a text for elf_text_clean(). Fuzzes:
 * node/stack/kallsyms.c, lib/symbols/text.c
 */
#include "lib/symbols/symbols.h"
#include "node/stack/internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void as_file(const uint8_t *data, size_t n, const struct kernel_symbols *same)
{
	_cleanup_close_ int fd = memfd_create("kallsyms", MFD_CLOEXEC);
	struct kernel_symbols *k;
	char path[32];

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (stacks_kernel_symbols_read(path, &k) < 0)
		return;
	if (stacks_kernel_symbols_count(k) != stacks_kernel_symbols_count(same) ||
	    stacks_kernel_symbols_hidden(k) != stacks_kernel_symbols_hidden(same) ||
	    (stacks_kernel_symbols_look(path) == 0 && !n))
		abort();
	stacks_kernel_symbols_free(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	_cleanup_free_ char *clean = elf_text_clean(text);
	_cleanup_free_ char *cleaner = elf_text_clean(clean);
	_cleanup_free_ char *lines = xmemdup(data, n ? n : 1);
	struct kernel_symbols *k = stacks_kernel_symbols_parse(lines, n);
	const char *name, *module;
	uint64_t start;

	if (!streq(clean, cleaner))
		abort();
	for (uint64_t address = 0; address < UINT64_MAX >> 1; address = address * 3 + 1)
		if (stacks_kernel_symbols_find(k, ~address, &start, &name, &module) == 0 &&
		    (start > ~address || strlen(name) + strlen(module) > n + sizeof("[kernel]")))
			abort();
	if (n && data[n - 1] == '\n')
		as_file(data, n, k);
	stacks_kernel_symbols_free(k);
	return 0;
}
