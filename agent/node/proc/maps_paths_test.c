/* SPDX-License-Identifier: Apache-2.0 */
/* A file in very many directories, whose path makes a line of /proc/PID/maps that has no end. */
#include "node/proc/proc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testfolder.h"

#define LEVELS 80

static char name[201]; /* of each directory */
static int deepest = -1;

/* Returns the address of code in the file. */
static void *map_deep_file(void)
{
	void *code;
	int fd;

	memset(name, 'd', sizeof(name) - 1);
	assert_int_equal(chdir(dir), 0);
	for (int i = 0; i < LEVELS; i++) {
		assert_int_equal(mkdir(name, 0700), 0);
		assert_int_equal(chdir(name), 0);
	}
	fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 4096), 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(code, MAP_FAILED);
	close(fd);
	deepest = open(".", O_PATH | O_CLOEXEC);
	assert_int_equal(chdir("/"), 0);
	return code;
}

/* The path is too long for dir_remove(). */
static void remove_deep_file(void *code)
{
	munmap(code, 4096);
	assert_int_equal(fchdir(deepest), 0);
	assert_int_equal(unlink("file"), 0);
	for (int i = 0; i < LEVELS; i++) {
		assert_int_equal(chdir(".."), 0);
		assert_int_equal(rmdir(name), 0);
	}
	assert_int_equal(chdir("/"), 0);
	closep(&deepest);
}

static void a_path_has_a_limit(void **state)
{
	struct counter *cut = counter("podflame_mappings_dropped_total", "reason", "long_path");
	void *code = map_deep_file();
	uint64_t before = counter_get(cut), start;
	const struct mapping *x;
	struct mappings *m;

	(void)state;
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, getpid()}, 1, &m), 0);
	x = proc_mappings_find(m, (uintptr_t)code);
	assert_non_null(x);
	assert_true(strlen(x->path) < 8192); /* MAPS_LINE_MAX */
	assert_int_equal(counter_get(cut), before + 1);
	/* what is behind the line is read */
	assert_non_null(proc_mappings_find(m, (uintptr_t)qsort));
	proc_mappings_unref(m);
	remove_deep_file(code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_path_has_a_limit, dir_make, dir_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
