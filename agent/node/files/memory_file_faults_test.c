/* SPDX-License-Identifier: Apache-2.0 */
/* A call fails while a memory file is copied: there must be no copy, or a whole one. */
#include "lib/base/fault.h"
#include "node/files/internal.h"

#include <setjmp.h>
#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 200000

static int file;

static int copy(void *arg)
{
	_cleanup_free_ char *bytes = xcalloc(1, BYTES), *expected = xcalloc(1, BYTES);
	int fd = -7, r;
	size_t n = 7;

	(void)arg;
	r = files_memory_file_copy(file, &fd, &n);
	fault_disarm();
	if (r < 0 || fd < 0) { /* if its type could not be read, the file counts as no ELF file */
		assert_true(r < 0 ? fd == -7 && n == 7 : fd == -1 && n == 0);
		return r ? r : -EIO;
	}
	assert_int_equal(n, BYTES);
	assert_int_equal(pread(file, expected, BYTES, 0), BYTES);
	assert_int_equal(pread(fd, bytes, BYTES, 0), BYTES);
	assert_memory_equal(bytes, expected, BYTES);
	close(fd);
	return 0;
}

static void test_memory_file(void **state)
{
	static const struct fault_row row = {
		.name = "memory_file_copy", .calls = FAULT_FILES | FAULT(FD), .run = copy};
	_cleanup_free_ char *bytes = xcalloc(1, BYTES);

	(void)state;
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (char)(i % 251);
	memcpy(bytes, "\177ELF", 4);
	file = memfd_create("program", MFD_CLOEXEC);
	assert_int_equal(fd_write_all(file, bytes, BYTES), 0);
	fault_each(&row, NULL);
	close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_file)};

	return cmocka_run_group_tests_name("memory_file_faults", tests, NULL, NULL);
}
