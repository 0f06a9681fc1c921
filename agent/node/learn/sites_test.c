// SPDX-License-Identifier: Apache-2.0
/* Which places of allocation are equal, and the text about places that cannot be probed. */
#include "node/learn/sites.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALLOC (1u << EVENT_MEM_ALLOC)
#define INUSE (1u << EVENT_MEM_INUSE)
#define HBM   (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE)

/* NULL: there must be no problem. Otherwise the text must have this part. */
static void assert_problem(const struct alloc_sites *s, unsigned event_mask,
			   const struct probes_refused *refused, const char *part)
{
	_cleanup_free_ char *text = learn_sites_problem(s, event_mask, refused);

	if (!text != !part || (part && !strstr(text, part)))
		fail_msg("%s: %s", part ? part : "no problem", text ? text : "none");
}

static void what_throws_is_told_for_mem_inuse(void **state)
{
	struct alloc_site items[2] = {{.site = {.kind = PF_SITE_ALLOC}},
				      {.site = {.kind = PF_SITE_ALLOC}}};
	struct alloc_sites s = {.items = items, .n = 2};
	const struct probes_refused frees = {.n = 1, .inuse = true},
				    many = {.n = 9, .too_many = true};

	(void)state;
	assert_problem(&s, ALLOC | INUSE, NULL, NULL);
	items[1].site.flags = PF_SITE_THROWS;
	assert_problem(&s, ALLOC, NULL, NULL);
	assert_problem(&s, INUSE, NULL, "operator new");
	items[1].site.kind = PF_SITE_INSIDE; /* flags is a factor of the size */
	assert_problem(&s, INUSE, NULL, NULL);
	items[1].site.kind = PF_SITE_ALLOC;
	strcpy(s.problem, "another");
	assert_problem(&s, INUSE, NULL, "another");
	assert_problem(&s, ALLOC, &frees, "another");
	assert_problem(&s, ALLOC | INUSE, &frees, "mem-inuse is not seen");
	assert_problem(&s, HBM, &frees, "hbm-inuse is not seen");
	assert_problem(&s, ALLOC, &many, "too many places");
}

/* Without a probe of on-gpu or rdma, values are too low, and nothing else shows that. */
static void a_refused_probe_is_told(void **state)
{
	struct alloc_sites s = {.problem = "another"};
	const struct probes_refused none = {0}, one = {.n = 1};

	(void)state;
	assert_problem(&s, 1u << EVENT_ON_GPU, &none, "another");
	assert_problem(&s, 1u << EVENT_ON_GPU, &one, "on-gpu is not seen");
	assert_problem(&s, 1u << EVENT_RDMA, &none, "another");
	assert_problem(&s, 1u << EVENT_RDMA, &one, "not all requests of rdma are seen");
	assert_problem(&s, ALLOC, &one, "another");
}

static void what_a_set_needs_is_missing_if_there_is_nothing_to_probe(void **state)
{
	struct alloc_site item = {.file_offset = 64};
	struct alloc_sites none = {0}, one = {.items = &item, .n = 1},
			   unknown = {.problem = "none of its functions is known"};

	(void)state;
	assert_string_equal(learn_sites_lack(PROBES_GPU_MEMORY, &none),
			    "a CUDA driver (libcuda.so.1)");
	assert_null(learn_sites_lack(PROBES_GPU_MEMORY, &one));
	assert_null(learn_sites_lack(PROBES_GPU_MEMORY, &unknown));
	assert_null(learn_sites_lack(PROBES_MEMORY, &none));
}

static void the_same_places_are_equal(void **state)
{
	struct mapping files[2] = {{.inode = 1}, {.inode = 2}};
	struct mappings both = {.items = files, .n = 2}, *m = &both;
	struct alloc_site a[1] = {{.mapping = 0, .file_offset = 64, .address = 4160}};
	struct alloc_site b[1] = {{.mapping = 0, .file_offset = 64, .address = 4160}};
	struct alloc_sites x = {.items = a, .n = 1}, y = {.items = b, .n = 1};

	(void)state;
	assert_true(learn_sites_equal(&x, m, &y, m));
	b[0].mapping = 1; /* another file */
	assert_false(learn_sites_equal(&x, m, &y, m));
	b[0].mapping = 0;
	b[0].site.kind = PF_SITE_FREE;
	assert_false(learn_sites_equal(&x, m, &y, m));
	b[0].site.kind = 0;
	b[0].semaphore = 8;
	assert_false(learn_sites_equal(&x, m, &y, m));
	b[0].semaphore = 0;
	y.n_inner = 1;
	assert_false(learn_sites_equal(&x, m, &y, m));
}

static void what_is_known_since_is_taken_over(void **state)
{
	struct alloc_sites s = {.n = 3, .problem = "before"};
	const struct alloc_sites newer = {.n = 3, .own_heap = true, .problem = "since"};

	(void)state;
	learn_sites_take_over(&s, &newer);
	assert_true(s.own_heap);
	assert_string_equal(s.problem, "since");
	assert_int_equal(s.n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_throws_is_told_for_mem_inuse),
		cmocka_unit_test(a_refused_probe_is_told),
		cmocka_unit_test(what_a_set_needs_is_missing_if_there_is_nothing_to_probe),
		cmocka_unit_test(the_same_places_are_equal),
		cmocka_unit_test(what_is_known_since_is_taken_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
