// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the headers of a file, as a process has them in memory: any bytes. The file's index is that
 * of this program.
 */
#include "node/runtime/internal.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/parse/format.h"

#define START 0x550000000000ull

static struct elf_index *own;

/* The memory has the header, and then segments, each with its number. */
static int read_headers(void *arg, uint64_t address, void *to, size_t n)
{
	static Elf64_Phdr segments[LOADED_ELF_SEGMENTS_MAX + 1];

	if (address == START) {
		memcpy(to, arg, n);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(segments); i++)
		segments[i].p_type = (Elf64_Word)i;
	if (address != START + sizeof(Elf64_Ehdr) || n > sizeof(segments))
		return -EFAULT;
	memcpy(to, segments, n);
	return 0;
}

static int read_elf(Elf64_Ehdr *h, struct loaded_elf *ret)
{
	struct memory memory = {.read = read_headers, .arg = h, .budget_bytes = MEMORY_BUDGET};
	struct mapping item = {.start = START, .end = START + 4096};
	const struct mappings maps = {.items = &item, .n = 1};
	const struct runtime_look look = {.maps = &maps, .indexes = &own, .memory = &memory};

	return runtime_loaded_elf_read(&look, &item, ret);
}

static void all_segments_are_read_or_none(void **state)
{
	Elf64_Ehdr h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
			.e_machine = EM_X86_64,
			.e_phoff = sizeof(h),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = LOADED_ELF_SEGMENTS_MAX};
	struct loaded_elf *e = xcalloc(1, sizeof(*e));

	(void)state;
	assert_int_equal(read_elf(&h, e), 0);
	assert_int_equal(e->n, LOADED_ELF_SEGMENTS_MAX);
	assert_ptr_equal(runtime_loaded_elf_segment(e, LOADED_ELF_SEGMENTS_MAX - 1),
			 &e->segments[LOADED_ELF_SEGMENTS_MAX - 1]);
	h.e_phnum++;
	assert_int_equal(read_elf(&h, e), -E2BIG);
	h.e_phnum = PN_XNUM;
	assert_int_equal(read_elf(&h, e), -E2BIG);
	assert_string_equal(runtime_error_word(-E2BIG), "over_limit");
	h.e_machine = EM_AARCH64;
	assert_int_equal(read_elf(&h, e), -EBADMSG);
	free(e);
}

static int set_up(void **state)
{
	static const char *const none[] = {NULL};
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), memfd;
	enum parse_reason why = parse_elf_to_index(fd, none, 64 << 20, &memfd);

	(void)state;
	close(fd);
	return why == PARSE_OK ? elf_index_open(memfd, &own) : -1;
}

static int tear_down(void **state)
{
	(void)state;
	elf_index_unref(own);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_segments_are_read_or_none),
	};

	return cmocka_run_group_tests_name("context_elf", tests, set_up, tear_down);
}
