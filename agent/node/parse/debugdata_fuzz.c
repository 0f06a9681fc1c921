/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as .gnu_debugdata: first as they are (a damaged stream), and then packed with xz
 * (a damaged ELF file inside). Fuzzes: node/parse/debugdata.c, node/parse/symbols.c
 */
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <lzma.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const marks[] = {"a", "b*", NULL};

static void parse(const void *section, size_t n)
{
	const struct test_section s[] = {
		TESTELF_TEXT, {".gnu_debugdata", section, n, 0, 0}, {NULL, NULL, 0, 0, 0}};
	_cleanup_close_ int fd = testelf_memfd(s, ET_DYN);
	struct elf_index *i;
	int memfd;

	if (parse_elf_to_index(fd, marks, 64 << 20, &memfd) != PARSE_OK)
		return;
	if (elf_index_open(memfd, &i) < 0)
		abort();
	elf_index_unref(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	size_t bytes = lzma_stream_buffer_bound(n), packed = 0;
	_cleanup_free_ uint8_t *stream = xmalloc(bytes);

	if (n == 0)
		return 0;
	parse(data, n);
	if (lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, data, n, stream, &packed, bytes) ==
	    LZMA_OK)
		parse(stream, packed);
	return 0;
}
