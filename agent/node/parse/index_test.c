/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a child's answer: exact look-ups, and answers that lie. */
#include "node/parse/format.h"
#include "node/parse/parse.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>

#include <cmocka.h>

static void assert_symbol(struct elf_index *i, uint64_t address, const char *name)
{
	struct elf_symbol s;

	assert_int_equal(elf_index_symbol(i, address, &s), 0);
	assert_string_equal(s.name, name);
}

static int seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
}

static int make_memfd(const void *data, size_t n)
{
	int fd = memfd_create("answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, n), 0);
	return fd;
}

struct small_index {
	struct index_header header;
	struct index_segment segment;
	struct index_symbol symbols[2];
	char strings[8];
};

static struct small_index valid_index(void)
{
	struct small_index x = {
		.header = {.n_symbols = 2, .n_segments = 1, .string_bytes = 8, .build_id_bytes = 2},
		.segment = {.address = 0x1000, .offset = 0, .bytes = 0x1000, .executable = 1},
		.symbols = {{0x1000, 16, 0}, {0x1010, 16, 4}},
		.strings = "one\0two",
	};

	memcpy(x.header.magic, INDEX_MAGIC, 8);
	x.header.build_id[0] = 0xab;
	return x;
}

static int open_bytes(const void *data, size_t n)
{
	int fd = make_memfd(data, n), r;
	struct elf_index *i;

	assert_int_equal(seal(fd), 0);
	r = elf_index_open(fd, &i);
	if (r == 0)
		elf_index_unref(i);
	return r;
}

static void lying_answers_are_refused(void **state)
{
	struct small_index good = valid_index(), x;
	struct elf_index *i;

	(void)state;
	assert_int_equal(open_bytes(&good, sizeof(good)), 0);
	assert_int_equal(elf_index_open(make_memfd(&good, sizeof(good)), &i),
			 -EBADMSG); /* no seals */
	assert_int_equal(open_bytes(&good, sizeof(good) - 1), -EBADMSG);
	assert_int_equal(open_bytes(&good, 20), -EBADMSG);
	assert_int_equal(open_bytes("", 0), -EBADMSG);
#define REFUSED(change)                                                                            \
	do {                                                                                       \
		x = good;                                                                          \
		change;                                                                            \
		assert_int_equal(open_bytes(&x, sizeof(x)), -EBADMSG);                             \
	} while (0)
	REFUSED(x.header.magic[7] = '2');
	REFUSED(x.header.n_symbols = 3);
	REFUSED(x.header.n_symbols = UINT32_MAX);
	REFUSED(x.header.n_segments = UINT32_MAX);
	REFUSED(x.header.string_bytes = UINT32_MAX);
	REFUSED(x.header.build_id_bytes = 65);
	REFUSED(x.symbols[0].address = 0x1008);		/* overlaps the next */
	REFUSED(x.symbols[1].address = 0);		/* not sorted */
	REFUSED(x.symbols[1].address = UINT64_MAX - 3); /* wraps */
	REFUSED(x.symbols[1].size = 0);
	REFUSED(x.symbols[1].name = 8);
	REFUSED(x.strings[7] = 'x'); /* last string has no end */
	REFUSED(x.segment.bytes = UINT64_MAX);
}

static void index_answers_are_exact(void **state)
{
	struct small_index x = valid_index();
	struct elf_index *i, *j;
	struct elf_symbol s;
	int a = make_memfd(&x, sizeof(x)), b;

	(void)state;
	assert_int_equal(seal(a), 0);
	assert_int_equal(elf_index_open(a, &i), 0);
	assert_symbol(i, 0x1000, "one");
	assert_symbol(i, 0x100f, "one");
	assert_symbol(i, 0x1010, "two");
	assert_int_equal(elf_index_symbol(i, 0xfff, &s), -ENOENT);
	assert_int_equal(elf_index_symbol(i, 0x1020, &s), -ENOENT);
	assert_string_equal(elf_index_build_id(i), "ab00");
	x.symbols[1].size = 8;
	b = make_memfd(&x, sizeof(x));
	assert_int_equal(seal(b), 0);
	assert_int_equal(elf_index_open(b, &j), 0);
	assert_true(elf_index_equal(i, i));
	assert_false(elf_index_equal(i, j));
	elf_index_unref(i);
	elf_index_unref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lying_answers_are_refused),
		cmocka_unit_test(index_answers_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
