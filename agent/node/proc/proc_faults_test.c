/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests functions while files of /proc and /sys cannot be read for a moment. The agent must not
 * take this for the end of a process or cgroup, and no descriptor may stay open.
 */
#include "lib/base/fault.h"
#include "node/proc/internal.h"
#include "node/proc/maps.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/testdir.h"

static char dir[TESTDIR_BYTES];

static int choose(void *arg)
{
	struct cgroup_hierarchy h, untouched;
	struct field_error e = {0};
	int r;

	(void)arg;
	memset(&h, 0x5a, sizeof(h));
	untouched = h;
	r = proc_cgroup_choose("", &h, &e);
	if (r)
		assert_memory_equal(&h, &untouched, sizeof(h));
	return r;
}

/* The scan finds the cgroups of all three pods, or fails, or reports that it may lack some. */
static int scan(void *arg)
{
	struct cgroup_hierarchy h = {.v2 = true};
	struct cgroup_scan *s = NULL;
	int r;

	(void)arg;
	snprintf(h.mount, sizeof(h.mount), "%s", dir);
	r = proc_cgroup_scan(&h, &s);
	if (r)
		assert_null(s);
	else
		assert_true(s->n == 3 || s->truncated);
	proc_cgroup_scan_free(s);
	return r;
}

/*
 * Checks that the copy of a page of the C library counts as a copy, or as anonymous memory without
 * a name.
 */
static void check_mappings(const struct mappings *m)
{
	const struct mapping *copy = proc_mappings_find(m, (uint64_t)qsort);

	assert_non_null(proc_mappings_find(m, (uint64_t)proc_check));
	assert_non_null(copy);
	assert_true(copy->copy || !copy->path[0]);
	assert_true(!copy->copy || copy->fd >= 0 || copy->open_error);
}

static int mappings(void *arg)
{
	struct mappings *m = NULL;
	uint64_t started = 0;
	int r = proc_start_boottime((uint32_t)getpid(), &started);

	(void)arg;
	if (!r)
		r = proc_mappings_read((struct process_id){started, getpid()}, 1, &m);
	if (r)
		assert_null(m);
	else
		check_mappings(m);
	proc_mappings_unref(m);
	return r;
}

static int living(void *arg)
{
	int fd = -1, r = proc_open_living((uint32_t)getpid(), &fd);

	(void)arg;
	if (r)
		assert_int_equal(fd, -1);
	else
		close(fd);
	return r;
}

static int cpu(void *arg)
{
	struct cgroup_cpu used = {7, 7, 7};
	struct cgroup_hierarchy h;
	uint64_t id = 0;
	int r = proc_cgroup_choose("", &h, NULL);

	(void)arg;
	if (!r)
		r = proc_cgroup_id_of(&h, "", &id);
	if (r)
		return r;
	r = proc_cgroup_cpu_read(&h, id, &used);
	if (r)
		assert_true(used.usage_ns == 7 && used.throttled_ns == 7);
	return r == -ENODATA ? 0 : r; /* v1 without cpuacct; the root cgroup has no cpu.max */
}

static void test_proc(void **state)
{
	static const struct fault_row rows[] = {
		{.name = "cgroup_choose", .calls = FAULT_FILES, .run = choose},
		{.name = "cgroup_scan", .calls = FAULT_FILES, .run = scan},
		{.name = "mappings_read", .calls = FAULT_FILES, .run = mappings, .step = 7},
		{.name = "proc_open_living", .calls = FAULT_FILES, .run = living},
		{.name = "cgroup_cpu_read", .calls = FAULT_FILES, .run = cpu},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		fault_each(&rows[i], NULL);
}

/*
 * Replaces a page of the C library's code by a copy in anonymous memory, so that proc_copies_find()
 * has one to find.
 */
static int make_copy(void)
{
	uintptr_t page = (uintptr_t)qsort & ~(uintptr_t)4095;
	_cleanup_free_ void *bytes = xmemdup((void *)page, 4096);
	void *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return -1;
	memcpy(copy, bytes, 4096);
	mprotect(copy, 4096, PROT_READ | PROT_EXEC);
	return mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)page) == (void *)page
		       ? 0
		       : -1;
}

static int setup(void **state)
{
	static const char *const pods[] = {
		"kubepods/pod11111111-1111-1111-1111-111111111111",
		"kubepods/pod21111111-1111-1111-1111-111111111111",
		"kubepods/burstable/pod31111111-1111-1111-1111-111111111111"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pods); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", dir, pods[i]);

		if (mkdir_parents(path, 0700))
			return -1;
	}
	return make_copy();
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_proc)};
	int r;

	if (testdir_make(dir))
		return 1;
	r = cmocka_run_group_tests_name("proc_faults", tests, setup, NULL);
	return testdir_remove(dir) ? 1 : r;
}
