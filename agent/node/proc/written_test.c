/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are written in place while a process has them mapped, and the limit of the table of
 * such files.
 */
#include "node/proc/maps.h"
#include "lib/base/testfolder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t evicted(void)
{
	return counter_get(counter("podflame_mapped_files_written_evicted_total", NULL, NULL));
}

static void written_files_have_a_limit(void **state)
{
	const struct mapping first = {.file_dev = 3, .inode = 1, .ctime_ns = 7};
	const struct mapping other = {.file_dev = 3, .inode = 1, .ctime_ns = 8};
	const struct mapping of_other_layer = {.file_dev = 4, .inode = 1, .ctime_ns = 7};
	const struct mapping last = {.file_dev = 3, .inode = 4097, .ctime_ns = 7};
	uint64_t before = evicted(), now_ns = now_mono_ns();

	(void)state;
	assert_false(proc_mapping_files_were_written());
	for (uint64_t i = 1; i <= 4096; i++)
		proc_maps_written_add(3, i, 7, now_ns);
	assert_true(proc_mapping_files_were_written());
	assert_true(proc_mapping_file_was_written(&first));
	assert_false(proc_mapping_file_was_written(&other));
	assert_false(proc_mapping_file_was_written(&of_other_layer));
	assert_int_equal(evicted() - before, 0);
	proc_maps_written_add(3, 4097, 7, now_ns);
	assert_false(proc_mapping_file_was_written(&first));
	assert_true(proc_mapping_file_was_written(&last));
	assert_int_equal(evicted() - before, 1);
	proc_maps_written_expire(now_ns + 60 * NSEC_PER_SEC);
	assert_true(proc_mapping_file_was_written(&last));
	proc_maps_written_expire(now_ns + 61 * NSEC_PER_SEC);
	assert_false(proc_mapping_files_were_written());
}

/* The mapping at `at`, whose file is open. */
static const struct mapping *mapping_of(const struct mappings *maps, const void *at)
{
	const struct mapping *m = proc_mappings_find(maps, (uintptr_t)at);

	assert_non_null(m);
	assert_true(m->fd >= 0);
	return m;
}

static struct mappings *read_own(void)
{
	struct mappings *maps;
	uint64_t start_ns;

	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start_ns), 0);
	assert_int_equal(proc_mappings_read((struct process_id){start_ns, getpid()}, 0, &maps), 0);
	return maps;
}

static void a_file_that_is_written_in_place(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/library", dir), *link_path = NULL;
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT, 0755);
	uint64_t until_ns = now_mono_ns() + 10 * NSEC_PER_SEC;
	struct mappings *before, *after;
	void *at;

	(void)state;
	if (geteuid() != 0) {
		print_message("skipped: the kernel opens mapped files for root alone\n");
		skip();
	}
	link_path = xasprintf("%s/link", dir);
	assert_int_equal(ftruncate(fd, 4096), 0);
	at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	before = read_own();
	proc_mapping_files_look();
	assert_false(proc_mapping_file_was_written(mapping_of(before, at)));
	/* A change of mode or links changes the ctime, but not the contents. */
	assert_int_equal(fchmod(fd, 0700), 0);
	assert_int_equal(link(path, link_path), 0);
	proc_mapping_files_look();
	assert_false(proc_mapping_file_was_written(mapping_of(before, at)));
	/* Writes until the file system's clock has moved on, so that the mtime changes. */
	while (!proc_mapping_file_was_written(mapping_of(before, at))) {
		if (now_mono_ns() > until_ns)
			fail_msg("10 s of writing, and it was not noticed");
		assert_int_equal(pwrite(fd, "x", 1, 0), 1);
		proc_mapping_files_look();
	}
	/* If the mappings are read now, they belong to the present contents. */
	after = read_own();
	proc_mapping_files_look();
	assert_true(proc_mapping_file_was_written(mapping_of(before, at)));
	assert_false(proc_mapping_file_was_written(mapping_of(after, at)));
	proc_mappings_unref(before);
	proc_mappings_unref(after);
	munmap(at, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_files_have_a_limit),
		cmocka_unit_test_setup_teardown(a_file_that_is_written_in_place, dir_make,
						dir_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
