/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as an ELF file, with the child's code. The index's reader must accept the result.
 * Fuzzes: node/parse/elf.c, node/parse/section.c, node/parse/symbols.c, node/parse/write.c,
 * node/parse/marks.c, node/parse/usdt.c, node/parse/code.c
 */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const marks[] = {"_*", "a", "\"GCC: ", "\"a", "%p*", NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_close_ int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct elf_index *i;
	int memfd;

	if (fd < 0 || fd_write_all(fd, data, n) < 0 ||
	    parse_elf_to_index(fd, marks, 64 << 20, &memfd) != PARSE_OK)
		return 0;
	if (elf_index_open(memfd, &i) < 0)
		abort();
	elf_index_unref(i);
	return 0;
}
