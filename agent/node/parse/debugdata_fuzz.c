/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as .gnu_debugdata: as they are (a damaged stream), and packed (a damaged ELF file inside).
 * Fuzzes: node/parse/debugdata.c, node/parse/symbols.c
 */
#include "node/parse/format.h"
#include "node/parse/testelf.h"

#include <lzma.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);

static const char *const marks[] = {"a", "b*", NULL};

static void parse(const void *section, size_t n)
{
	const struct test_section s[] = {
		TESTELF_TEXT, {".gnu_debugdata", section, n, 0, 0}, {NULL, NULL, 0, 0, 0}};
	_cleanup_close_ int fd = testelf_memfd(s, ET_DYN);
	struct elf_index *i;
	int memfd;

	if (elf_to_index(fd, marks, 64 << 20, &memfd) != PARSE_OK)
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

/* The first input: a file with .symtab. */
static void first_input(struct buf *ret)
{
	const Elf64_Sym symbols[] = {
		{0},
		{1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, 0x1000, 16},
		{3, ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), 0, 1, 0x1020, 0},
		{5, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0, 1, 0x1030, 64},
	};
	const struct test_section s[] = {TESTELF_TEXT,
					 {".symtab", symbols, sizeof(symbols), 0, 0},
					 {".strtab", "\0a\0b\0c", 7, 0, 0},
					 {NULL, NULL, 0, 0, 0}};
	Elf64_Ehdr *e;
	Elf64_Shdr *h;

	testelf_make(s, ET_DYN, ret);
	e = (Elf64_Ehdr *)ret->data;
	h = (Elf64_Shdr *)(ret->data + e->e_shoff);
	h[2].sh_type = SHT_SYMTAB;
	h[2].sh_link = 3;
	h[2].sh_entsize = sizeof(symbols[0]);
	h[3].sh_type = SHT_STRTAB;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max, unsigned seed)
{
	_cleanup_buf_ struct buf first = {0};

	if (n < 64 || seed % 64 == 0) {
		first_input(&first);
		if (first.len <= max) {
			memcpy(data, first.data, first.len);
			n = first.len;
		}
	}
	return LLVMFuzzerMutate(data, n, max);
}
