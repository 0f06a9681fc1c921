/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of rows: a file that the test has made in its folder, as podflame reads it. */
#pragma once

#include "lib/base/testfolder.h"
#include "node/parse/testrows.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The address of a function or label in the file. */
static inline uint64_t symbol(const char *name, const char *function)
{
	_cleanup_free_ char *command =
		xasprintf("nm %s/%s | awk '$3 == \"%s\" {print $1}'", dir, name, function);
	FILE *f = popen(command, "r");
	unsigned long long address = 0;

	assert_int_equal(fscanf(f, "%llx", &address), 1);
	pclose(f);
	return address;
}

/* The index of the file, whose tables are in *ret; the caller calls elf_index_unref(). */
static inline struct elf_index *index_of(const char *name, struct elf_tables *ret)
{
	_cleanup_free_ char *path = file_in_dir(name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_index *i;
	int memfd;

	assert_true(fd >= 0);
	assert_int_equal(parse_elf_to_index(fd, NULL, 1 << 20, &memfd), PARSE_OK);
	assert_int_equal(elf_index_open(memfd, &i), 0);
	elf_index_tables(i, ret);
	return i;
}
