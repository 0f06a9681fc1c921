/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of files, and for how long. The test program is its own parse child. */
#include "lib/base/testdir.h"
#include "node/files/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[TESTDIR_BYTES];

static struct files *make(size_t cache_bytes)
{
	struct files_config c = {.cache_bytes = cache_bytes};
	struct files *f;

	assert_int_equal(files_new(&c, &f), 0);
	return f;
}

static void run(const char *fmt, ...) _printf_(1, 2);
static void run(const char *fmt, ...)
{
	char command[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	assert_int_equal(system(command), 0);
}

static struct mapping map_of(const char *path)
{
	struct stat st;
	struct mapping m = {.start = 0x1000, .end = 0x100000000, .path = "/app"};

	m.fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(m.fd, &st), 0);
	m.inode = st.st_ino;
	m.mtime_ns = st.st_mtim.tv_sec * NSEC_PER_SEC + st.st_mtim.tv_nsec;
	return m;
}

static struct mapping copy_of_program(const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	run("cp /proc/%d/exe %s", getpid(), path);
	return map_of(path);
}

static void ask(struct files *f, const struct mapping *m)
{
	struct file_names names;

	files_names(f, m, 0, m->start, &names);
	files_names_done(f, &names);
}

static void indexes_are_kept_under_the_limit(void **state)
{
	struct counter *evicted = counter("podflame_symbol_files_evicted_total", NULL, NULL);
	struct files *f = make(4096); /* less than one index */
	struct mapping a = copy_of_program("a"), b = map_of("/bin/sh");
	uint64_t before = counter_get(evicted);
	size_t bytes;

	(void)state;
	ask(f, &a);
	bytes = files_bytes(f);
	assert_true(bytes > 4096);
	ask(f, &b);
	assert_int_equal(files_count(f), 1);
	assert_int_equal(counter_get(evicted), before + 1);
	ask(f, &a);
	assert_int_equal(files_bytes(f), bytes);
	close(a.fd);
	close(b.fd);
	files_free(f);
}

static void equal_files_share_one_index(void **state)
{
	struct mapping a = copy_of_program("a"), b = copy_of_program("b");
	struct elf_index *index_a, *index_b;
	struct files *f = make(0);

	(void)state;
	assert_int_equal(files_index(f, &a, &index_a), 0);
	assert_int_equal(files_index(f, &b, &index_b), 0);
	assert_ptr_equal(index_a, index_b);
	assert_int_equal(files_count(f), 2);
	assert_int_equal(files_bytes(f), elf_index_bytes(index_a));
	elf_index_unref(index_a);
	files_free(f);
	assert_true(elf_index_n_symbols(index_b) > 0); /* ours as long as we hold it */
	elf_index_unref(index_b);
	close(a.fd);
	close(b.fd);
}

static void failed_files_are_counted_once(void **state)
{
	struct counter *gone = counter("podflame_symbol_files_failed_total", "reason", "gone");
	struct mapping m = {.start = 4096,
			    .end = 8192,
			    .path = "/gone.so",
			    .fd = -1,
			    .open_error = -ENOENT,
			    .inode = 5};
	struct files *f = make(0);
	uint64_t before = counter_get(gone);
	struct file_names names;
	struct elf_index *index;

	(void)state;
	files_names(f, &m, 0, 5000, &names);
	assert_int_equal(names.n, 0);
	assert_string_equal(names.build_id, "");
	assert_int_equal(names.address, 0);
	files_names_done(f, &names);
	assert_int_equal(files_index(f, &m, &index), -ENOENT);
	assert_int_equal(counter_get(gone), before + 1);
	files_free(f);
}

static void what_is_no_file_is_no_failure(void **state)
{
	struct mapping jit = {.start = 4096, .end = 8192, .path = "", .fd = -1};
	struct mapping vdso32 = {.start = 4096, .end = 8192, .path = "[vdso]", .fd = -1};
	struct files *f = make(0);
	struct elf_index *index;

	(void)state;
	assert_int_equal(files_index(f, &jit, &index), -ENOENT);
	assert_int_equal(files_index(f, &vdso32, &index), -ENOENT);
	assert_int_equal(files_count(f), 0);
	files_free(f);
}

struct asker {
	struct files *f;
	const struct mapping *m;
	struct elf_index *index;
};

static void *ask_for_index(void *arg)
{
	struct asker *a = arg;

	if (files_index(a->f, a->m, &a->index) < 0)
		a->index = NULL;
	return NULL;
}

static void many_threads_parse_a_file_once(void **state)
{
	struct mapping m = copy_of_program("a");
	struct files *f = make(0);
	struct asker askers[8];
	pthread_t threads[8];

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		askers[i] = (struct asker){f, &m, NULL};
		assert_int_equal(pthread_create(&threads[i], NULL, ask_for_index, &askers[i]), 0);
	}
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (size_t i = 0; i < 8; i++) {
		assert_non_null(askers[i].index);
		assert_ptr_equal(askers[i].index, askers[0].index);
	}
	for (size_t i = 0; i < 8; i++)
		elf_index_unref(askers[i].index);
	assert_int_equal(files_count(f), 1);
	files_free(f);
	close(m.fd);
}

static int start(void **state)
{
	(void)state;
	return testdir_make(dir);
}

static int stop(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(indexes_are_kept_under_the_limit),
		cmocka_unit_test(equal_files_share_one_index),
		cmocka_unit_test(failed_files_are_counted_once),
		cmocka_unit_test(what_is_no_file_is_no_failure),
		cmocka_unit_test(many_threads_parse_a_file_once),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, start, stop);
}
