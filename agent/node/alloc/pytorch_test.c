/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the functions of PyTorch's allocator: all of them, or none and a problem. The library of
 * the test is also the CUDA driver.
 */
#include "node/alloc/testalloc.h"

#include "lib/base/testfolder.h"

#define INUSE  (1u << PF_EVENT_HBM_INUSE)
#define NAME   "_ZN3c104cuda20CUDACachingAllocator6Native"
#define MALLOC NAME "22NativeCachingAllocator6mallocEPPvamP11CUstream_st"
#define RAW    NAME "22NativeCachingAllocator10raw_deleteEPv"
#define LOCAL  NAME "L16local_raw_deleteEPv"
#define KEPT   "__attribute__((used, noipa)) static "

#define DRIVER                                                                                     \
	"int cuInit() { return 1; } int cuMemAlloc_v2() { return 2; }"                             \
	"int cuMemFree_v2() { return 3; }\n"
#define DELETES KEPT "void " RAW "(void *p, void *q) {}\n" KEPT "void " LOCAL "(void *p) {}\n"
/* two returns, and one that is only the second byte of another instruction */
#define CODE                                                                                       \
	"asm(\".text\\n.type " MALLOC ", @function\\n" MALLOC ":\\n"                               \
	"test %edi, %edi\\njz 1f\\nret\\n1: mov $0xc3, %al\\nret\\n"                               \
	".size " MALLOC ", . - " MALLOC "\\n\");\n"
#define LEAVES                                                                                     \
	"asm(\".text\\n.type " MALLOC ", @function\\n" MALLOC ":\\njmp other\\nret\\n"             \
	".size " MALLOC ", . - " MALLOC "\\nother: ret\\n\");\n"

static struct alloc_process process;

static struct alloc_sites *find(const char *source, unsigned events, pid_t *ret_pid)
{
	*ret_pid = alloc_library_start(dir, "libc10_cuda.so", source);
	return alloc_find(&process, *ret_pid, events);
}

static size_t n_of(const struct alloc_sites *s, unsigned kind)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->items[i].site.kind == kind;
	return n;
}

static void the_functions_and_each_return_are_sites(void **state)
{
	pid_t pid;
	struct alloc_sites *s = find(DRIVER DELETES CODE, INUSE, &pid);

	(void)state;
	assert_string_equal(s->problem, "");
	assert_int_equal(n_of(s, PF_SITE_GPU_OBJECT), 1);
	assert_int_equal(n_of(s, PF_SITE_GPU_OBJECT_DONE), 2);
	assert_int_equal(n_of(s, PF_SITE_GPU_OBJECT_FREE), 2);
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].site.kind == PF_SITE_GPU_OBJECT) {
			assert_int_equal(s->items[i].site.ptr_arg, 2);
			assert_int_equal(s->items[i].site.size_arg, 4);
			assert_int_equal(s->items[i].site.count_arg, 5);
		}
	alloc_process_stop(pid, &process, s);
}

static void none_of(const char *source, unsigned events, const char *problem)
{
	pid_t pid;
	struct alloc_sites *s = find(source, events, &pid);

	if (*problem ? !strstr(s->problem, problem) : *s->problem)
		fail_msg("problem: %s", s->problem);
	for (size_t i = 0; i < s->n; i++)
		assert_false(PF_SITE_IS_GPU_OBJECT(s->items[i].site.kind));
	alloc_process_stop(pid, &process, s);
}

static void without_all_functions_there_are_none(void **state)
{
	(void)state;
	none_of(DRIVER, INUSE, "libc10_cuda.so lacks symbols");
	none_of(DRIVER CODE, INUSE, "without its objects");
	none_of(DRIVER DELETES, INUSE, "without its objects");
	/* it goes on elsewhere, so it may return there */
	none_of(DRIVER DELETES LEAVES, INUSE, "without its objects");
}

static void only_memory_in_use_has_objects(void **state)
{
	(void)state;
	none_of(DRIVER DELETES CODE, 1u << PF_EVENT_HBM_ALLOC, "");
	none_of(DELETES CODE, INUSE, ""); /* there is no driver */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_functions_and_each_return_are_sites),
		cmocka_unit_test(without_all_functions_there_are_none),
		cmocka_unit_test(only_memory_in_use_has_objects),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
