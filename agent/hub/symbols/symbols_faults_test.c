/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk fails while files are uploaded, listed and read. After that, the old file or the new one
 * must be stored, and no file may be deleted as damaged.
 */
#include "hub/symbols/symbols.h"
#include "lib/base/fault.h"

#include <setjmp.h>
#include <cmocka.h>

#include "hub/symbols/testindex.h"
#include "lib/base/testdir.h"

#define ID    "00112233445566778899aabbccddeeff00112233"
#define OTHER "ff112233445566778899aabbccddeeff00112233"

static char dir[TESTDIR_BYTES], files[96];
static void *upload;
static size_t upload_bytes;

static int open_it(struct symbols **ret)
{
	struct symbols_config c = {.dir = files, .max_bytes = 1 << 20};
	struct field_error e = {0};
	int r = symbols_open(&c, ret, &e);

	assert_true(!r == !e.reason[0]);
	return r;
}

static int use(void *arg)
{
	struct elf_index *index = NULL;
	struct field_error e = {0};
	struct symbols *s = NULL;
	json_t *list;
	int r = open_it(&s);

	(void)arg;
	if (r) {
		assert_null(s);
		return r;
	}
	r = symbols_put(s, NULL, ID, upload, upload_bytes, &e);
	assert_true(!r == !e.reason[0]);
	list = symbols_list(s);
	assert_true(json_array_size(list) >= (r ? 1 : 2));
	json_decref(list);
	if (!r)
		r = symbols_index(s, NULL, ID, NULL, &index);
	assert_true(!r == !!index);
	if (index)
		assert_string_equal(elf_index_build_id(index), ID);
	elf_index_unref(index);
	symbols_close(s);
	return r;
}

/* After the next start, the hub must still have the complete old file. */
static void check(void *arg)
{
	struct elf_index *index = NULL;
	struct symbols *s = NULL;

	(void)arg;
	assert_int_equal(open_it(&s), 0);
	assert_int_equal(symbols_index(s, NULL, OTHER, NULL, &index), 0);
	elf_index_unref(index);
	symbols_close(s);
}

/*
 * If open fails once because no descriptor is free, the file does not count as damaged: the next
 * look-up returns it.
 */
static int look(void *arg)
{
	struct elf_index *index = NULL;
	struct symbols *s = NULL;
	int r;

	(void)arg;
	r = open_it(&s);
	if (r)
		return r;
	r = symbols_index(s, NULL, OTHER, NULL, &index);
	elf_index_unref(index);
	fault_disarm();
	if (r && r != -EBADMSG) {
		assert_int_equal(symbols_index(s, NULL, OTHER, NULL, &index), 0);
		elf_index_unref(index);
	}
	symbols_close(s);
	return r;
}

static char copies[96];

static void remove_copies(void *arg)
{
	(void)arg;
	testdir_remove(copies);
}

static int copy_run(void *arg)
{
	struct field_error e = {0};
	size_t n = 99;
	int r = symbols_copy(files, copies, &n, &e);

	(void)arg;
	assert_true(!r == !e.reason[0]);
	assert_true(r ? n == 99 : n > 0);
	return r;
}

static void test_symbols(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "symbols_open, symbols_put, symbols_index",
		 .calls = FAULT_FILES | FAULT(MMAP) | FAULT(MALLOC),
		 .run = use,
		 .check = check},
		{.name = "symbols_index", .calls = FAULT_FILES | FAULT(MMAP), .run = look},
		{.name = "symbols_copy",
		 .calls = FAULT_FILES,
		 .before = remove_copies,
		 .run = copy_run,
		 .check = check},
	};
	size_t n;
	_cleanup_free_ void *other = test_upload(OTHER, &n);
	struct field_error e = {0};
	struct symbols *s;

	(void)state;
	upload = test_upload(ID, &upload_bytes);
	assert_int_equal(open_it(&s), 0);
	assert_int_equal(symbols_put(s, NULL, OTHER, other, n, &e), 0);
	symbols_close(s);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
	free(upload);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_symbols)};
	int r;

	if (testdir_make(dir))
		return 1;
	snprintf(files, sizeof(files), "%s/symbols", dir);
	snprintf(copies, sizeof(copies), "%s/copies", dir);
	r = cmocka_run_group_tests_name("symbols_faults", tests, NULL, NULL);
	return testdir_remove(dir) ? 1 : r;
}
