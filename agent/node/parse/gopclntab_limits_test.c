/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests a .gopclntab with a function "f", made by hand, that exceeds the limits of its reader. The
 * test needs no Go toolchain.
 */
#include "node/parse/gopclntab.h"
#include "node/parse/testelf.h"

#include <elf.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define CANDIDATES_MAX 64 /* as in gopclntab_find.c */

#define CODE_ADDRESS  0x401000ull
#define CODE_BYTES    128u
#define DATA_ADDRESS  0x600000ull
#define TABLE_ADDRESS 0x700000ull
#define MODULE_WORDS  48
#define HEADER_BYTES  72 /* size of the header since Go 1.20 */
#define N_PARTS	      5	 /* names, units, files, pcs, functions */
#define CUT	      (ELF_INDEX_UNWIND_CUT | ELF_INDEX_DWARF_CUT)

struct made {
	size_t n_functions; /* all functions except the first have no inlined calls */
	/* inlined calls of "f", each inside the one before. Call k is at byte k of the code. */
	uint8_t n_calls;
	size_t n_decoys; /* pointers to the table that lie before its moduledata and in none */
};

/*
 * Adds two tables "value by pc". The first, at offset 1, has the value 0 for all code. The second
 * has the value k at byte k, for each of n_calls calls, and -1 after them. Returns where the second
 * one begins.
 */
static uint32_t add_pcs(struct buf *b, uint8_t n_calls)
{
	size_t start = b->len;
	uint32_t calls;

	testelf_uint(b, 0, 1);
	buf_put_varint(b, 2);
	buf_put_varint(b, CODE_BYTES);
	testelf_uint(b, 0, 1);
	calls = b->len - start;
	for (uint8_t k = 0; k < n_calls; k++) {
		buf_put_varint(b, 2);
		buf_put_varint(b, 1);
	}
	buf_put_varint(b, 2 * n_calls - 1);
	buf_put_varint(b, CODE_BYTES - n_calls);
	testelf_uint(b, 0, 1);
	return calls;
}

/* Adds the first function, and others that begin before the first one ends. */
static void add_functions(struct buf *b, size_t n, uint32_t calls)
{
	_cleanup_free_ uint32_t *entries = xcalloc(2 * (n + 1), sizeof(*entries));

	entries[1] = 8 * (n + 1);
	entries[2] = CODE_BYTES;
	buf_add(b, entries, 8 * (n + 1));
	testelf_uint(b, 0, 4);
	testelf_uint(b, 1, 4); /* name */
	testelf_uint(b, 0, 8);
	testelf_uint(b, 1, 4); /* stack sizes, files, lines */
	testelf_uint(b, 1, 4);
	testelf_uint(b, 1, 4);
	testelf_uint(b, 3, 4); /* pcdata */
	testelf_uint(b, 0, 8);
	testelf_uint(b, 4u << 24, 4); /* funcdata */
	testelf_uint(b, 0, 8);
	testelf_uint(b, calls, 4);
	testelf_uint(b, UINT64_MAX, 8);
	testelf_uint(b, UINT32_MAX, 4);
	testelf_uint(b, 0, 4); /* inlined calls: where go:func.* begins */
}

static void make_table(const struct made *m, struct buf *b, uint64_t offsets[N_PARTS])
{
	static const char names[] = "\0f\0in", file[] = "f.go";
	uint32_t calls;

	buf_init(b, 64 << 20);
	testelf_uint(b, 0xfffffff1, 4);
	testelf_uint(b, 0x08010000, 4);
	testelf_uint(b, m->n_functions, 8);
	testelf_uint(b, 1, 8);
	testelf_uint(b, CODE_ADDRESS, 8);
	for (size_t k = 0; k < N_PARTS; k++)
		testelf_uint(b, 0, 8);
	offsets[0] = b->len;
	buf_add(b, names, sizeof(names));
	offsets[1] = b->len;
	testelf_uint(b, 0, 4);
	offsets[2] = b->len;
	buf_add(b, file, sizeof(file));
	offsets[3] = b->len;
	calls = add_pcs(b, m->n_calls);
	offsets[4] = b->len;
	add_functions(b, m->n_functions, calls);
	memcpy(b->data + 32, offsets, N_PARTS * sizeof(*offsets));
}

/* Makes the data segment: pointers to the table, its moduledata, go:func.* */
static void make_data(const struct made *m, const uint64_t offsets[N_PARTS], struct buf *b)
{
	uint64_t module[MODULE_WORDS] = {[0] = TABLE_ADDRESS, [22] = CODE_ADDRESS};

	buf_init(b, 0);
	for (size_t k = 0; k < m->n_decoys; k++)
		testelf_uint(b, TABLE_ADDRESS, 8);
	for (size_t k = 0; k < N_PARTS; k++)
		module[1 + 3 * k] = TABLE_ADDRESS + offsets[k];
	module[40] = DATA_ADDRESS + b->len + sizeof(module);
	buf_add(b, module, sizeof(module));
	for (uint32_t k = 0; k < m->n_calls; k++) {
		testelf_uint(b, 0, 4);
		testelf_uint(b, 3, 4); /* "in" */
		testelf_uint(b, k ? k - 1 : CODE_BYTES - 1, 4);
		testelf_uint(b, k, 4);
	}
}

static void add_segment(struct buf *file, Elf64_Phdr *p, uint32_t flags, uint64_t address,
			const void *data, size_t n)
{
	*p = (Elf64_Phdr){
		.p_type = PT_LOAD,
		.p_flags = flags,
		.p_offset = file->len,
		.p_vaddr = address,
		.p_filesz = n,
	};
	buf_add(file, data, n);
}

/* Makes a file, and returns its descriptor, which the caller closes. */
static int make_file(struct made m)
{
	static const uint8_t code[CODE_BYTES];
	Elf64_Ehdr e = {
		.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(e),
		.e_ehsize = sizeof(e),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 3,
	};
	int fd = memfd_create("testgo", MFD_CLOEXEC);
	_cleanup_buf_ struct buf file = {0}, table = {0}, data = {0};
	uint64_t offsets[N_PARTS];
	Elf64_Phdr p[3] = {0};

	make_table(&m, &table, offsets);
	make_data(&m, offsets, &data);
	buf_init(&file, 64 << 20);
	buf_add(&file, &e, sizeof(e));
	buf_add(&file, p, sizeof(p));
	add_segment(&file, &p[0], PF_R | PF_X, CODE_ADDRESS, code, sizeof(code));
	add_segment(&file, &p[1], PF_R | PF_W, DATA_ADDRESS, data.data, data.len);
	add_segment(&file, &p[2], PF_R, TABLE_ADDRESS, table.data, table.len);
	memcpy(file.data + sizeof(e), p, sizeof(p));
	assert_false(file.failed || table.failed || data.failed);
	assert_int_equal(fd_write_all(fd, file.data, file.len), 0);
	return fd;
}

static struct elf_index *index_of(struct made m)
{
	_cleanup_close_ int fd = make_file(m);
	struct elf_index *i;
	int memfd;

	assert_int_equal(parse_elf_to_index(fd, NULL, 1 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	return i;
}

static void check(struct made m, size_t n_inlined, unsigned flags)
{
	struct elf_index *i = index_of(m);
	struct elf_inline inlined[ELF_INLINES_MAX];
	struct elf_symbol s;

	assert_int_equal(elf_index_flags(i) & (ELF_INDEX_GO | CUT), ELF_INDEX_GO | flags);
	assert_int_equal(elf_index_symbol(i, CODE_ADDRESS, &s), 0);
	assert_string_equal(s.name, "f");
	assert_int_equal(s.size, CODE_BYTES);
	assert_int_equal(elf_index_inlines(i, CODE_ADDRESS + m.n_calls - 1, inlined), n_inlined);
	if (n_inlined) {
		assert_string_equal(inlined[0].name, "in");
		assert_int_equal(inlined[0].line, m.n_calls - 1);
	}
	elf_index_unref(i);
}

/* Sets the members of b that parse_go_table_find needs. */
static void open_build(struct elf_build *b, int fd)
{
	elf_version(EV_CURRENT);
	b->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	for (b->n_segments = 0; b->n_segments < 3; b->n_segments++) {
		GElf_Phdr p;

		assert_non_null(gelf_getphdr(b->elf, b->n_segments, &p));
		b->segments[b->n_segments] = (struct index_segment){
			.address = p.p_vaddr,
			.offset = p.p_offset,
			.bytes = p.p_filesz,
			.executable = !!(p.p_flags & PF_X),
		};
	}
}

static void functions_over_the_limit_are_told(void **state)
{
	(void)state;
	for (size_t over = 0; over < 2; over++) {
		_cleanup_close_ int fd = make_file(
			(struct made){.n_functions = INDEX_SYMBOLS_MAX + over, .n_calls = 1});
		struct elf_build b = {0};
		struct go_table t;

		open_build(&b, fd);
		assert_true(parse_go_table_find(&b, &t));
		assert_int_equal(t.n_functions, INDEX_SYMBOLS_MAX);
		assert_int_equal(b.header.flags & CUT, over ? CUT : 0);
		parse_go_table_done(&t);
		elf_end(b.elf);
	}
}

static void a_table_is_read(void **state)
{
	(void)state;
	check((struct made){.n_functions = 1, .n_calls = 3}, 3, 0);
}

static void moduledata_behind_too_many_places_is_told(void **state)
{
	struct made m = {.n_functions = 1, .n_calls = 1, .n_decoys = CANDIDATES_MAX - 1};

	(void)state;
	check(m, 1, 0);
	m.n_decoys++;
	check(m, 0, CUT);
}

/* The outermost inlined functions of a chain are left out, and the index is marked as cut. */
static void deeper_chains_of_inlined_functions_are_told(void **state)
{
	struct made m = {.n_functions = 1, .n_calls = ELF_INLINES_MAX};

	(void)state;
	check(m, ELF_INLINES_MAX, 0);
	m.n_calls++;
	check(m, ELF_INLINES_MAX, ELF_INDEX_DWARF_CUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_table_is_read),
		cmocka_unit_test(functions_over_the_limit_are_told),
		cmocka_unit_test(moduledata_behind_too_many_places_is_told),
		cmocka_unit_test(deeper_chains_of_inlined_functions_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
