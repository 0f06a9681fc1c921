/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes whole files while each system call fails. Also tests that fault_each() finds
 * leaks and wrong results.
 */
#include "lib/base/fault.h"

#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "lib/base/testdir.h"

static char dir[TESTDIR_BYTES], path[128];
static const char old_text[] = "what was there before\n";
static char new_text[40000];

/* ---- rows ---- */

static int read_run(void *arg)
{
	char untouched[1], *text = untouched;
	size_t n = 7;
	int r = file_read(AT_FDCWD, path, 65536, &text, &n);

	(void)arg;
	if (r) {
		assert_ptr_equal(text, untouched);
		assert_int_equal(n, 7);
		return r;
	}
	assert_int_equal(n, sizeof(new_text));
	assert_memory_equal(text, new_text, n);
	free(text);
	return 0;
}

static void write_before(void *arg)
{
	(void)arg;
	assert_int_equal(file_write_atomic(path, old_text, strlen(old_text), 0600), 0);
}

static int write_run(void *arg)
{
	(void)arg;
	return file_write_atomic(path, new_text, sizeof(new_text), 0600);
}

/* The file has the old text or the new one, never a part of one. */
static void write_check(void *arg)
{
	_cleanup_free_ char *text = NULL;
	size_t n;

	(void)arg;
	assert_int_equal(file_read(AT_FDCWD, path, 65536, &text, &n), 0);
	assert_true(n == sizeof(new_text) || streq(text, old_text));
}

static int mkdir_run(void *arg)
{
	_cleanup_free_ char *deep = xasprintf("%s/a/b/c", dir);

	(void)arg;
	return mkdir_parents(deep, 0700);
}

static int json_run(void *arg)
{
	static const char text[] = "a: {b: [1, 2, three], c: \"x\"}\nd: [4.5, null, true]\n";
	struct field_error err = {0};
	struct yaml_doc *doc = NULL;
	int r = yaml_parse(text, strlen(text), &doc, &err);

	(void)arg;
	if (r) {
		assert_null(doc);
		return r;
	}
	assert_int_equal(json_array_size(json_at(yaml_root(doc), "a.b")), 3);
	yaml_doc_free(doc);
	return 0;
}

static void test_files(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "file_write_atomic",
		 .calls = FAULT_FILES,
		 .before = write_before,
		 .run = write_run,
		 .check = write_check},
		{.name = "file_read", .calls = FAULT_FILES, .run = read_run},
		{.name = "mkdir_parents", .calls = FAULT_FILES, .run = mkdir_run},
		{.name = "yaml_parse", .calls = FAULT(MALLOC), .run = json_run},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

/* ---- mistakes that fault_each() must find ---- */

static int leak_fd(void *arg)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)arg;
	if (fd < 0)
		return -errno; /* the mistake: null is not closed */
	close(fd);
	if (null < 0)
		return -errno;
	close(null);
	return 0;
}

static int leak_memory(void *arg)
{
	char *p = xmalloc(10), *text;
	int r = file_read(AT_FDCWD, path, 65536, &text, NULL);

	(void)arg;
	if (r)
		return r; /* the mistake: p is not freed */
	free(text);
	free(p);
	return 0;
}

static int ignore_short_write(void *arg)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	(void)arg;
	if (fd < 0)
		return -errno;
	return write(fd, new_text, sizeof(new_text)) < 0 ? -errno : 0;
}

static bool short_seen;

static void whole_check(void *arg)
{
	_cleanup_free_ char *text = NULL;
	size_t n;

	(void)arg;
	assert_int_equal(file_read(AT_FDCWD, path, 65536, &text, &n), 0);
	short_seen |= n == sizeof(new_text) / 2;
}

static void test_what_is_seen(void **state)
{
	static const struct fault_row fd = {.name = "fd", .calls = FAULT(OPEN), .run = leak_fd},
				      memory = {.name = "memory",
						.calls = FAULT(READ),
						.run = leak_memory},
				      part = {.name = "part",
					      .calls = FAULT(WRITE),
					      .run = ignore_short_write,
					      .check = whole_check};
	unsigned n = 0;

	(void)state;
	(void)memory;
	assert_non_null(strstr(fault_find(&fd, NULL, &n), "1 descriptors"));
	assert_int_equal(n, 0);
#ifndef __SANITIZE_ADDRESS__ /* with ASan, LeakSanitizer reports lost memory */
	assert_non_null(strstr(fault_find(&memory, NULL, &n), "1 allocations"));
#endif
	assert_null(fault_find(&part, NULL, &n));
	assert_true(short_seen);
}

static int setup(void **state)
{
	(void)state;
	memset(new_text, 'x', sizeof(new_text));
	snprintf(path, sizeof(path), "%s/file", dir);
	return file_write_atomic(path, new_text, sizeof(new_text), 0600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_files, setup),
		cmocka_unit_test_setup(test_what_is_seen, setup),
	};
	int r;

	if (testdir_make(dir))
		return 1;
	r = cmocka_run_group_tests_name("base_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
