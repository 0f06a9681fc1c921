/* SPDX-License-Identifier: Apache-2.0 */
/* Memory limits of this process, from files as both cgroup versions have them. */
#include "lib/base/testfolder.h"
#include "node/proc/proc.h"

#include <setjmp.h>
#include <sys/stat.h>

#include <cmocka.h>

static void put(const char *path, const char *text)
{
	_cleanup_free_ char *full = xasprintf("%s/%s", dir, path), *parent = xstrdup(full);

	*strrchr(parent, '/') = '\0';
	assert_int_equal(mkdir_parents(parent, 0755), 0);
	assert_int_equal(file_write_atomic(full, text, strlen(text), 0644), 0);
}

static void version_2(void **state)
{
	(void)state;
	put("kubepods/pod1/memory.max", "1073741824\n");
	put("kubepods/pod1/c1/memory.max", "max\n");
	put("kubepods/memory.max", "4294967296\n");
	assert_int_equal(proc_memory_limit("0::/kubepods/pod1/c1\n", dir), 1073741824);
	assert_int_equal(proc_memory_limit("0::/kubepods\n", dir), 4294967296);
	assert_int_equal(proc_memory_limit("0::/other\n", dir), UINT64_MAX);
	/* in a container, the mount is the container's own cgroup */
	put("memory.max", "268435456\n");
	assert_int_equal(proc_memory_limit("0::/\n", dir), 268435456);
}

static void version_1(void **state)
{
	(void)state;
	put("memory/kubepods/memory.limit_in_bytes", "536870912\n");
	/* this number means no limit */
	put("memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(
		proc_memory_limit("5:cpu,cpuacct:/x\n4:memory:/kubepods\n1:name=x:/\n", dir),
		536870912);
	assert_int_equal(proc_memory_limit("4:hugetlb,memory:/kubepods\n", dir), 536870912);
	assert_int_equal(proc_memory_limit("4:memory:/\n", dir), UINT64_MAX);
	assert_int_equal(proc_memory_limit("4:cpu:/kubepods\n", dir), UINT64_MAX);
	assert_int_equal(proc_memory_limit("nonsense\n:\n", dir), UINT64_MAX);
}

static void what_the_pods_spec_says(void **state)
{
	(void)state;
	setenv("MEMORY_LIMIT", "100000000", 1);
	assert_true(proc_memory_share(64 << 20) <= 25000000);
	setenv("MEMORY_LIMIT", "nonsense", 1);
	assert_int_equal(proc_memory_share(4096), 4096);
	unsetenv("MEMORY_LIMIT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(version_2, dir_make, dir_remove),
		cmocka_unit_test_setup_teardown(version_1, dir_make, dir_remove),
		cmocka_unit_test(what_the_pods_spec_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
