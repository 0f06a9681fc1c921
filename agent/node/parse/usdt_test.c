/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the notes of USDT probes: good ones, and those that a hostile file may have. */
#include "lib/base/testfolder.h"
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const marks[] = {"%test:*", NULL};

/* ---- libraries with notes ---- */

/*
 * How the source of each library begins: code at `here`; data: `counter`, whose bytes are in the
 * file, and `zeros`, whose bytes are not. The test appends notes; the macro `probe` makes one note.
 */
static const char head[] = ".text\nhere: nop\nret\n"
			   ".data\ncounter: .2byte 0\n"
			   ".bss\n.balign 4096\nzeros: .zero 65536\n"
			   ".section .stapsdt.base, \"a\", @progbits\nbase: .space 1\n"
			   ".macro probe place, base, semaphore, provider, name, arguments\n"
			   ".4byte 8, 2f - 1f, 3\n.asciz \"stapsdt\"\n"
			   "1: .8byte \\place, \\base, \\semaphore\n"
			   ".asciz \"\\provider\", \"\\name\", \"\\arguments\"\n"
			   "2: .balign 4\n.endm\n"
			   ".section .note.stapsdt, \"\", @note\n";

static struct elf_index *index_of(const char *notes)
{
	_cleanup_free_ char *path = file_in_dir("l.S");
	_cleanup_free_ char *source = xasprintf("%s%s\n", head, notes);
	_cleanup_free_ char *library = file_in_dir("l.so");
	_cleanup_free_ char *command =
		xasprintf("gcc -shared -fPIC -nostdlib %s -o %s", path, library);
	_cleanup_close_ int fd = -1;
	struct elf_index *i;
	int memfd;

	assert_int_equal(file_write_atomic(path, source, strlen(source), 0600), 0);
	assert_int_equal(system(command), 0);
	fd = open(library, O_RDONLY | O_CLOEXEC);
	assert_int_equal(parse_elf_to_index(fd, marks, 64 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	return i;
}

static uint64_t address_of(const char *symbol)
{
	_cleanup_free_ char *command =
		xasprintf("nm %s/l.so | awk '$3 == \"%s\" {print $1}'", dir, symbol);
	unsigned long long address = 0;
	FILE *f = popen(command, "r");

	assert_int_equal(fscanf(f, "%llx", &address), 1);
	pclose(f);
	return address;
}

/* ---- good notes ---- */

static void check_probe(const struct elf_index *i, const char *name, uint64_t address,
			bool semaphore)
{
	struct elf_mark m;
	uint64_t counter;

	assert_int_equal(elf_index_find_mark(i, name, &m), 0);
	assert_int_equal(m.address, address);
	assert_false(m.thread_local);
	if (semaphore) {
		assert_int_equal(elf_index_address(i, m.size, &counter), 0);
		assert_int_equal(counter, address_of("counter"));
	} else {
		assert_int_equal(m.size, 0);
	}
}

static void probes_are_marks(void **state)
{
	struct elf_index *i = index_of("probe here, base, counter, test, one, \"8@%rdi -4@$1\"\n"
				       "probe here+1, base, 0, test, two, \"\"\n");

	(void)state;
	assert_int_equal(elf_index_n_marks(i), 2);
	check_probe(i, "%test:one 8@%rdi -4@$1", address_of("here"), true);
	check_probe(i, "%test:two ", address_of("here") + 1, false);
	elf_index_unref(i);
}

/* If prelink has moved the file by 0x1000, the notes still have the old addresses. */
static void moved_files_are_corrected(void **state)
{
	struct elf_index *i =
		index_of("probe here-0x1000, base-0x1000, counter-0x1000, test, one, \"8@%rdi\"\n"
			 "probe here-0x1000, base-0x1000, 0, test, two, \"8@%rdi\"\n");

	(void)state;
	check_probe(i, "%test:one 8@%rdi", address_of("here"), true);
	check_probe(i, "%test:two 8@%rdi", address_of("here"), false);
	elf_index_unref(i);
}

/* ---- notes that are left out ---- */

#define LAST "\nprobe here, base, 0, test, last, \"8@%%rdi\"\n"

/* Checks that these notes give no mark, but that the note behind them (LAST) does. */
static void check_none(const char *notes)
{
	_cleanup_free_ char *all = xasprintf("%s" LAST, notes);
	struct elf_index *i = index_of(all);

	assert_int_equal(elf_index_n_marks(i), 1);
	check_probe(i, "%test:last 8@%rdi", address_of("here"), false);
	elf_index_unref(i);
}

static void other_notes_are_left_out(void **state)
{
	static const char *const heads[] = {
		"8, 2f - 1f, 4\n.asciz \"stapsdt\"",
		"8, 2f - 1f, 3\n.asciz \"stapsdu\"",
		"7, 2f - 1f, 3\n.asciz \"stapsdt\"",
		"0, 2f - 1f, 3",
	};

	(void)state;
	check_none("probe here, base, 0, other, one, \"\"");
	check_none(".4byte 8, 0, 3\n.asciz \"stapsdt\"");
	for (size_t k = 0; k < ARRAY_SIZE(heads); k++) {
		_cleanup_free_ char *note = xasprintf(".4byte %s\n1: .8byte here, base, 0\n"
						      ".asciz \"test\", \"x\", \"\"\n"
						      "2: .balign 4",
						      heads[k]);

		check_none(note);
	}
}

static void texts_without_an_end_are_left_out(void **state)
{
	static const char *const texts[] = {
		"",
		".ascii \"test\"",
		".ascii \"test\\0x\\0\"",
		".ascii \"test\\0x\\08@%rdi\"",
		".asciz \"test\"\n.fill 256, 1, 65\n.byte 0, 0",
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(texts); k++) {
		_cleanup_free_ char *note = xasprintf(
			".4byte 8, 2f - 1f, 3\n.asciz \"stapsdt\"\n1: .8byte here, base, 0\n%s\n"
			"2: .balign 4",
			texts[k]);

		check_none(note);
	}
}

static void semaphores_outside_of_the_file_are_left_out(void **state)
{
	(void)state;
	check_none("probe here, base, zeros+8192, test, x, \"\"");
	check_none("probe here, base, -1, test, x, \"\"");
	check_none("probe here, base, here, test, x, \"\"");
	check_none("probe here, base, counter+0x7000000, test, x, \"\"");
}

/* A note says that it is longer than the rest of the section, or it has no addresses. */
static void damaged_notes_end_the_section(void **state)
{
	static const char *const sizes[] = {"8, 0x7fffffff", "0x7fffffff, 8", "-1, -1", "8, 16"};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		_cleanup_free_ char *notes = xasprintf(
			LAST ".4byte %s, 3\n.asciz \"stapsdt\"\n.8byte here, base\n", sizes[k]);
		struct elf_index *i = index_of(notes);

		assert_int_equal(elf_index_n_marks(i), 1);
		elf_index_unref(i);
	}
}

static void probes_have_a_limit(void **state)
{
	struct elf_index *i = index_of(".set n, 0\n.rept 100\n"
				       "probe here+n, base, 0, test, many, \"\"\n"
				       ".set n, n + 1\n.endr\n");

	(void)state;
	assert_int_equal(elf_index_n_marks(i), PARSE_MARK_HITS);
	assert_true(elf_index_flags(i) & ELF_INDEX_MARKS_CUT);
	elf_index_unref(i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probes_are_marks),
		cmocka_unit_test(moved_files_are_corrected),
		cmocka_unit_test(other_notes_are_left_out),
		cmocka_unit_test(texts_without_an_end_are_left_out),
		cmocka_unit_test(semaphores_outside_of_the_file_are_left_out),
		cmocka_unit_test(damaged_notes_end_the_section),
		cmocka_unit_test(probes_have_a_limit),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
