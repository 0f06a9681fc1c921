/* SPDX-License-Identifier: Apache-2.0 */
/* For tests and fuzzers: makes an ELF file in memory from sections, as small as it can be. */
#pragma once

#include "lib/base/base.h"

#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct test_section {
	const char *name; /* NULL ends a list */
	const void *data; /* NULL: SHT_NOBITS of n bytes */
	size_t n;
	uint64_t address, flags;
};

#define TESTELF_TEXT_ADDRESS 0x1000
#define TESTELF_TEXT                                                                               \
	((struct test_section){".text", NULL, 0x10000, TESTELF_TEXT_ADDRESS,                       \
			       SHF_ALLOC | SHF_EXECINSTR})
#define TESTELF_SECTIONS_MAX 32

static inline void testelf_section_(struct buf *file, struct buf *names,
				    const struct test_section *s, Elf64_Shdr *ret)
{
	*ret = (Elf64_Shdr){
		.sh_name = names->len,
		.sh_type = s->data ? SHT_PROGBITS : SHT_NOBITS,
		.sh_flags = s->flags,
		.sh_addr = s->address,
		.sh_offset = file->len,
		.sh_size = s->n,
		.sh_addralign = 1,
	};
	buf_add(names, s->name, strlen(s->name) + 1);
	if (s->data)
		buf_add(file, s->data, s->n);
}

/* Puts the bytes of the file into *ret. type: ET_DYN, ET_REL. */
static inline void testelf_make(const struct test_section *s, uint16_t type, struct buf *ret)
{
	Elf64_Shdr headers[TESTELF_SECTIONS_MAX + 2] = {0};
	Elf64_Ehdr e = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = type,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(e),
		.e_shentsize = sizeof(headers[0]),
	};
	_cleanup_buf_ struct buf names = {0};
	size_t n = 1;

	buf_init(ret, 0);
	buf_init(&names, 0);
	buf_putc(&names, '\0');
	buf_add(ret, &e, sizeof(e));
	for (; s->name && n <= TESTELF_SECTIONS_MAX; s++)
		testelf_section_(ret, &names, s, &headers[n++]);
	headers[n] = (Elf64_Shdr){.sh_name = names.len, .sh_type = SHT_STRTAB, .sh_addralign = 1};
	buf_add(&names, ".shstrtab", sizeof(".shstrtab"));
	headers[n].sh_offset = ret->len;
	headers[n].sh_size = names.len;
	buf_add(ret, names.data, names.len);
	e.e_shstrndx = n++;
	e.e_shnum = n;
	buf_add(ret, "\0\0\0\0\0\0\0", -ret->len & 7);
	e.e_shoff = ret->len;
	buf_add(ret, headers, n * sizeof(headers[0]));
	memcpy(ret->data, &e, sizeof(e));
}

static inline int testelf_memfd(const struct test_section *s, uint16_t type)
{
	int fd = memfd_create("testelf", MFD_CLOEXEC);
	_cleanup_buf_ struct buf file = {0};

	testelf_make(s, type, &file);
	if (fd < 0 || file.failed || fd_write_all(fd, file.data, file.len) < 0)
		abort();
	return fd;
}

/* Adds the lowest n bytes of value. */
static inline void testelf_uint(struct buf *b, uint64_t value, size_t n)
{
	buf_add(b, &value, n);
}

/*
 * Writes the head of a DWARF unit of version 4, with length 0, and the abbreviation of its first
 * DIE.
 */
static inline void testelf_unit(struct buf *b, uint8_t abbreviation)
{
	buf_init(b, 0);
	testelf_uint(b, 0, 4);
	testelf_uint(b, 4, 2);
	testelf_uint(b, 0, 4);
	testelf_uint(b, 8, 1);
	testelf_uint(b, abbreviation, 1);
}
