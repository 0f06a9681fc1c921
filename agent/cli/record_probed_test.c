// SPDX-License-Identifier: Apache-2.0
/* What record prints about memory that its probes did not see. */
#include "cli/record_probed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)

/*
 * Returns the sites of a process: one, in the C library. jvm: the process also has a JVM, in which
 * no site is found for mem-inuse.
 */
static struct alloc_sites *found(bool jvm)
{
	const struct alloc_site site = {.file_offset = 64};
	struct alloc_sites *s = xcalloc(1, sizeof(*s));

	s->items = xmemdup(&site, sizeof(site));
	s->n = 1;
	s->own_heap = jvm;
	snprintf(s->problem, sizeof(s->problem), "%s", jvm ? "no Java objects" : "");
	return s;
}

/* Returns the text that record prints at its end. */
static char *printed(const struct record_probed *x)
{
	int saved = dup(2);
	FILE *f = tmpfile();
	char text[4096] = "";

	assert_non_null(f);
	assert_true(dup2(fileno(f), 2) == 2);
	cli_record_probes_print_lack(x, 1);
	assert_true(dup2(saved, 2) == 2);
	close(saved);
	rewind(f);
	(void)!fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	return xstrdup(text);
}

/*
 * Compares the memory of the process with what its probes saw, as record_probes.c does each second.
 * The probes see nothing.
 */
static void look_at_memory(struct record_probed *x, uint64_t anon_bytes)
{
	const struct proc_memory now = {
		.anon_bytes = anon_bytes, .data_bytes = anon_bytes, .n_threads = 1};

	if (cli_record_probed_is_compared(x))
		learn_unseen(&x->unseen, &now, 0, 1);
}

/* The process maps the C library first and the JVM later. For mem-inuse the JVM has no sites. */
static void a_jvm_that_comes_later_has_its_own_heap(void **state)
{
	struct mapping library = {.inode = 1, .fd = -1};
	struct mappings maps = {.items = &library, .n = 1, .id = {1000, 8}, .refs = 1};
	struct record_probed x = {.id = maps.id};
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	assert_true(cli_record_probed_sites(&x, EVENT_MEM_INUSE, found(false), &maps));
	look_at_memory(&x, 0);
	look_at_memory(&x, 100 * MIB);
	before = printed(&x);
	assert_non_null(strstr(before, "its memory grew by 100 MiB"));
	/* the process has the same sites as before */
	assert_false(cli_record_probed_sites(&x, EVENT_MEM_INUSE, found(true), &maps));
	look_at_memory(&x, 200 * MIB);
	look_at_memory(&x, 300 * MIB);
	after = printed(&x);
	assert_null(strstr(after, "its memory grew"));
	assert_non_null(strstr(after, "the profile lacks a part of it: no Java objects"));
	cli_record_probed_reset(&x);
	free(x.problem);
}

/* The process lacks a library at first. It is likely to load it in its first seconds. */
static void a_young_process_loads_soon(void **state)
{
	static const struct alloc_sites none;
	struct record_probed x = {0};
	struct alloc_sites *s = found(false);
	uint64_t start_ns = 1000 * NSEC_PER_SEC;

	(void)state;
	assert_false(cli_record_probed_loads_soon(&x, start_ns));
	cli_record_probed_lacks(&x, PROBES_RDMA, &none, start_ns);
	assert_string_equal(x.lacks, "libibverbs (libibverbs.so.1)");
	assert_true(cli_record_probed_loads_soon(&x, start_ns + 9 * NSEC_PER_SEC));
	/* a later search does not make it younger */
	cli_record_probed_lacks(&x, PROBES_RDMA, &none, start_ns + 9 * NSEC_PER_SEC);
	assert_false(cli_record_probed_loads_soon(&x, start_ns + 10 * NSEC_PER_SEC));
	/* its probes are attached as soon as it has loaded the library */
	cli_record_probed_lacks(&x, PROBES_RDMA, s, start_ns + NSEC_PER_SEC);
	assert_null(x.lacks);
	assert_false(cli_record_probed_loads_soon(&x, start_ns + NSEC_PER_SEC));
	/* an allocator is there from the start */
	cli_record_probed_lacks(&x, PROBES_MEMORY, &none, start_ns);
	assert_false(cli_record_probed_loads_soon(&x, start_ns));
	alloc_sites_free(s);
}

/* All that kept the library of on-gpu from its work is printed, also if it has passed. */
static void all_problems_of_the_library_are_printed(void **state)
{
	static const struct podflame_cuda_status reports[] = {
		{.state = PODFLAME_CUDA_REFUSED, .code = 39},
		{.state = PODFLAME_CUDA_REFUSED, .code = 39},
		{.state = PODFLAME_CUDA_FAILED, .code = 27},
		{.state = PODFLAME_CUDA_RUNNING},
	};
	struct record_probed x = {.problem = xstrdup("a refused place")};
	struct on_gpu_status s = {.told_ns = 1};
	_cleanup_free_ char *text = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(reports); i++) {
		s.library = reports[i];
		cli_record_probed_library(&x, &s, NSEC_PER_SEC);
	}
	text = printed(&x);
	assert_non_null(strstr(text, "lacks a part of it: a refused place; its work on GPUs is not "
				     "seen: another profiler has CUPTI; its work on GPUs is not "
				     "seen: CUPTI failed (error 27)\n"));
	cli_record_probed_forgive(&x);
	free(TAKE_PTR(text));
	text = printed(&x);
	assert_string_equal(text, "");
}

/* A library may lie, and have another problem at each report. */
static void problems_of_the_library_have_an_end(void **state)
{
	struct record_probed x = {0};
	struct on_gpu_status s = {.told_ns = 1, .library.state = PODFLAME_CUDA_FAILED};

	(void)state;
	for (s.library.code = 1000; s.library.code < 2000; s.library.code++)
		cli_record_probed_library(&x, &s, NSEC_PER_SEC);
	assert_in_range(strlen(x.library_problems), 500, 600);
	cli_record_probed_forgive(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_problems_of_the_library_are_printed),
		cmocka_unit_test(problems_of_the_library_have_an_end),
		cmocka_unit_test(a_young_process_loads_soon),
		cmocka_unit_test(a_jvm_that_comes_later_has_its_own_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
