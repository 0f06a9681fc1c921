/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads any bytes as a .gopclntab, in an ELF file made around them: code, the table, and a
 * moduledata that points to the table. The first byte of the input says which release; the second,
 * how many functions. Then come the sizes of the parts, as 16-bit numbers, and then the parts. The
 * last bytes of the parts are also the file's relocations. If the first byte is 0xff, the rest is a
 * whole table as in a file. Fuzzes: node/parse/gopclntab.c, node/parse/gopclntab_find.c,
 * node/parse/gopclntab_header.c, node/parse/gopclntab_inlines.c, node/parse/gopclntab_rows.c
 */
#include "node/parse/format.h"

#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CODE_ADDRESS   0x401000ull
#define CODE_BYTES     4096u
#define MODULE_ADDRESS 0x600000ull
#define TABLE_ADDRESS  0x700000ull
#define TABLE_MAX      (2u << 20)
#define N_PARTS	       5
#define DYNAMIC_WORD   50

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct image {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdrs[4];
	uint64_t module[64];
	uint8_t code[CODE_BYTES];
	uint8_t table[TABLE_MAX];
};

static void put64(uint8_t *at, uint64_t v)
{
	memcpy(at, &v, sizeof(v));
}

/*
 * Fills the code with push %rbp; mov %rsp,%rbp; mov %rsp,X: the prologues and stack switches that
 * gopclntab_rows.c looks for.
 */
static void fill_code(uint8_t *code)
{
	static const uint8_t bytes[16] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x62, 0x38,
					  0x48, 0x89, 0x2c, 0x24, 0x41, 0x5c, 0x41, 0x55};

	for (size_t i = 0; i < CODE_BYTES; i++)
		code[i] = bytes[i % sizeof(bytes)];
}

/* Makes the table, and returns its size. */
static size_t make_table(uint8_t *table, const uint8_t *data, size_t n)
{
	static const uint32_t magics[] = {0xfffffffa, 0xfffffff0, 0xfffffff1};
	uint64_t offset = 72;
	unsigned layout = data[0] % 3;
	uint8_t *header = table + (layout == 0 ? 24 : 32);

	if (data[0] == 0xff || n < 2 + 2 * N_PARTS) {
		memcpy(table, data + 1, n - 1);
		return n - 1;
	}
	memcpy(table, &magics[layout], 4);
	memcpy(table + 4, "\0\0\1\10", 4);
	put64(table + 8, data[1]);
	if (layout)
		put64(table + 24, CODE_ADDRESS);
	for (size_t i = 0; i < N_PARTS; i++) {
		uint16_t bytes;

		put64(header + 8 * i, offset);
		memcpy(&bytes, data + 2 + 2 * i, 2);
		offset += bytes % 1024;
	}
	data += 2 + 2 * N_PARTS;
	n -= 2 + 2 * N_PARTS;
	memcpy(table + 72, data, n);
	return 72 + n;
}

static void make_module(uint64_t *module, const uint8_t *table, size_t table_bytes)
{
	static const uint8_t slices[N_PARTS] = {1, 4, 7, 10, 13};
	const uint8_t *header = table + (table[0] == 0xfa ? 24 : 32);

	module[0] = TABLE_ADDRESS;
	for (size_t i = 0; i < N_PARTS; i++) {
		uint64_t offset;

		memcpy(&offset, header + 8 * i, 8);
		module[slices[i]] = TABLE_ADDRESS + offset;
	}
	module[22] = CODE_ADDRESS;
	module[40] = TABLE_ADDRESS; /* go:func.* begins at the table, too */
	module[DYNAMIC_WORD] = DT_RELA;
	module[DYNAMIC_WORD + 1] = TABLE_ADDRESS + (table_bytes > 240 ? table_bytes - 240 : 0);
	module[DYNAMIC_WORD + 2] = DT_RELASZ;
	module[DYNAMIC_WORD + 3] = 240;
}

static void make_elf(struct image *m, size_t table_bytes)
{
	memcpy(m->ehdr.e_ident, "\177ELF\2\1\1", 7);
	m->ehdr.e_type = ET_EXEC;
	m->ehdr.e_machine = EM_X86_64;
	m->ehdr.e_version = 1;
	m->ehdr.e_phoff = offsetof(struct image, phdrs);
	m->ehdr.e_ehsize = sizeof(Elf64_Ehdr);
	m->ehdr.e_phentsize = sizeof(Elf64_Phdr);
	m->ehdr.e_phnum = 4;
	m->phdrs[0] = (Elf64_Phdr){.p_type = PT_LOAD,
				   .p_flags = PF_R | PF_X,
				   .p_offset = offsetof(struct image, code),
				   .p_vaddr = CODE_ADDRESS,
				   .p_filesz = CODE_BYTES};
	m->phdrs[1] = (Elf64_Phdr){.p_type = PT_LOAD,
				   .p_flags = PF_R | PF_W,
				   .p_offset = offsetof(struct image, module),
				   .p_vaddr = MODULE_ADDRESS,
				   .p_filesz = sizeof(m->module)};
	m->phdrs[2] = (Elf64_Phdr){.p_type = PT_LOAD,
				   .p_flags = PF_R,
				   .p_offset = offsetof(struct image, table),
				   .p_vaddr = TABLE_ADDRESS,
				   .p_filesz = table_bytes};
	m->phdrs[3] = (Elf64_Phdr){
		.p_type = PT_DYNAMIC, .p_vaddr = MODULE_ADDRESS + 8 * DYNAMIC_WORD, .p_filesz = 32};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_close_ int fd = memfd_create("fuzz", MFD_CLOEXEC);
	_cleanup_free_ struct image *m = NULL;
	struct elf_index *i;
	size_t bytes;
	int memfd;

	if (fd < 0 || n < 2 || n > TABLE_MAX - 128)
		return 0;
	m = xcalloc(1, offsetof(struct image, table) + n + 128);
	fill_code(m->code);
	bytes = make_table(m->table, data, n);
	make_module(m->module, m->table, bytes);
	if (data[0] & 4) /* only the relocations have the pointers */
		memset(m->module, 0, 8 * 23);
	make_elf(m, bytes);
	if (fd_write_all(fd, m, offsetof(struct image, table) + bytes) < 0 ||
	    parse_elf_to_index(fd, NULL, 64 << 20, &memfd) != PARSE_OK)
		return 0;
	if (elf_index_open(memfd, &i) < 0)
		abort();
	elf_index_unref(i);
	return 0;
}
