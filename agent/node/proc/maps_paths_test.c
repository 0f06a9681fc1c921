/* SPDX-License-Identifier: Apache-2.0 */
/* A file in very many directories, whose path makes a line of /proc/PID/maps that has no end. */
#include "node/proc/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testfolder.h"

#define LEVELS		80
#define LEVELS_THAT_FIT 40
#define LINE_BYTES_MAX	8192 /* MAPS_LINE_MAX: with the NUL */

static char name[201]; /* of each directory */
static int deepest = -1;

static void make_deep_directories(int levels)
{
	memset(name, 'd', sizeof(name) - 1);
	assert_int_equal(chdir(dir), 0);
	for (int i = 0; i < levels; i++) {
		assert_int_equal(mkdir(name, 0700), 0);
		assert_int_equal(chdir(name), 0);
	}
	deepest = open(".", O_PATH | O_CLOEXEC);
}

/* The paths are too long for dir_remove(). */
static void remove_deep_directories(int levels)
{
	for (int i = 0; i < levels; i++) {
		assert_int_equal(chdir(".."), 0);
		assert_int_equal(rmdir(name), 0);
	}
	assert_int_equal(chdir("/"), 0);
	closep(&deepest);
}

/* Returns the address of code in the file. */
static void *map_deep_file(void)
{
	void *code;
	int fd;

	make_deep_directories(LEVELS);
	fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 4096), 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(code, MAP_FAILED);
	close(fd);
	assert_int_equal(chdir("/"), 0);
	return code;
}

static void remove_deep_file(void *code)
{
	munmap(code, 4096);
	assert_int_equal(fchdir(deepest), 0);
	assert_int_equal(unlink("file"), 0);
	remove_deep_directories(LEVELS);
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
	assert_true(strlen(x->path) < LINE_BYTES_MAX);
	assert_int_equal(counter_get(cut), before + 1);
	/* what is behind the line is read */
	assert_non_null(proc_mappings_find(m, (uintptr_t)qsort));
	proc_mappings_unref(m);
	remove_deep_file(code);
}

/* Returns how many bytes the line of the mapping at the address has. */
static size_t line_bytes_at(const void *code)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	assert_non_null(f);
	do {
		n = getline(&line, &cap, f);
		assert_true(n > 0);
	} while (strtoull(line, NULL, 16) != (uintptr_t)code);
	free(line);
	fclose(f);
	return n;
}

/* Maps a new file with this name, in the deepest directory, at the address. */
static void map_named(const char *file, void *code)
{
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_ptr_equal(mmap(code, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0),
			 code);
	close(fd);
}

/* The line just fits, with its end. The next one is read, too. */
static void a_line_may_be_as_long_as_the_limit(void **state)
{
	struct counter *cut = counter("podflame_mappings_dropped_total", "reason", "long_path");
	char *code =
		mmap(NULL, 2 * 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t before = counter_get(cut), start;
	char file[NAME_MAX + 1] = "f";
	struct mappings *m;
	size_t n;

	(void)state;
	assert_ptr_not_equal(code, MAP_FAILED);
	make_deep_directories(LEVELS_THAT_FIT);
	map_named(file, code);
	n = line_bytes_at(code);
	assert_int_equal(unlink(file), 0);
	assert_true(n <= LINE_BYTES_MAX - 1 && LINE_BYTES_MAX - 1 - n < NAME_MAX);
	memset(file, 'f', LINE_BYTES_MAX - n);
	map_named(file, code);
	assert_int_equal(line_bytes_at(code), LINE_BYTES_MAX - 1);
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start, getpid()}, 1, &m), 0);
	assert_non_null(proc_mappings_find(m, (uintptr_t)code));
	assert_non_null(proc_mappings_find(m, (uintptr_t)code + 4096));
	assert_int_equal(counter_get(cut), before);
	proc_mappings_unref(m);
	assert_int_equal(unlink(file), 0);
	munmap(code, 2 * 4096);
	remove_deep_directories(LEVELS_THAT_FIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_path_has_a_limit, dir_make, dir_remove),
		cmocka_unit_test_setup_teardown(a_line_may_be_as_long_as_the_limit, dir_make,
						dir_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
