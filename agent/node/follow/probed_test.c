// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent does after a second search for the places where a process allocates. This thread
 * does the work of the workers.
 */
#include "node/follow/testprobed.h"

#define EVENTS (1u << EVENT_MEM_INUSE)
#define RDMA   (1u << EVENT_RDMA)

static struct mapping library = {.inode = 1};
static struct mappings maps = {.items = &library, .n = 1, .refs = 1};
static struct alloc_site items[2] = {{.file_offset = 64, .address = 4160},
				     {.file_offset = 128, .address = 4224}};
static struct alloc_sites found; /* what the next search finds */

static int find_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      const struct pf_rdma_functions *rdma, struct alloc_sites **ret)
{
	(void)rdma;
	(void)f;
	assert_ptr_equal(m, &maps);
	assert_int_equal(event_mask, EVENTS);
	*ret = xmemdup(&found, sizeof(found));
	(*ret)->items = xmemdup(found.items, found.n * sizeof(*found.items));
	return 0;
}

static const struct follow_calls calls = {.find_sites = find_sites, .probes = &counted_probes};

static int set_up(void **state)
{
	(void)state;
	probed_begin(&calls, EVENTS, NULL);
	found = (struct alloc_sites){.items = items, .n = 1};
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	probed_end();
	assert_int_equal(maps.refs, 1);
	return 0;
}

static void look_once(void)
{
	follow_probed_look(tracked, &maps);
	posted_run_all();
	assert_non_null(memory->attached);
	assert_int_equal(memory->attached_mask, EVENTS);
}

/*
 * The process maps its C library first and its JVM later. For mem-inuse there are no places to
 * probe in the JVM.
 */
static void a_jvm_that_comes_later_has_its_own_heap(void **state)
{
	const struct probed *x = memory;

	(void)state;
	look_once();
	assert_int_equal(probes.n_attached, 1);
	assert_false(x->sites->own_heap);
	tracked->compared.text = xstrdup("100 MiB");
	found.own_heap = true;
	snprintf(found.problem, sizeof(found.problem), "no Java objects");
	look_once();
	assert_true(x->sites->own_heap);
	assert_string_equal(x->sites->problem, "no Java objects");
	assert_string_equal(x->problem, "no Java objects");
	assert_null(tracked->compared.text); /* the unseen memory was that of the JVM */
	assert_int_equal(probes.n_attached, 1);
	assert_false(x->stale);
}

static void other_places_are_attached_anew(void **state)
{
	(void)state;
	look_once();
	look_once();
	assert_int_equal(probes.n_attached, 1);
	found.n = 2;
	look_once();
	assert_int_equal(probes.n_attached, 2);
	assert_int_equal(memory->sites->n, 2);
}

static struct pf_rdma_functions looked_with;
static unsigned n_searches;

static int find_rdma_sites(struct files *f, const struct mappings *m, unsigned event_mask,
			   const struct pf_rdma_functions *rdma, struct alloc_sites **ret)
{
	(void)f;
	(void)m;
	assert_int_equal(event_mask, RDMA);
	n_searches++;
	looked_with = *rdma;
	*ret = xcalloc(1, sizeof(**ret));
	return 0;
}

/*
 * When the BPF programs have found more functions of RDMA providers, the agent looks for places
 * again, even if the report of these functions was lost.
 */
static void new_functions_start_a_search(void **state)
{
	static const struct follow_calls rdma_calls = {.find_sites = find_rdma_sites,
						       .probes = &counted_probes};
	struct probed *x;

	(void)state;
	probed_begin(&rdma_calls, RDMA, NULL);
	x = &tracked->probed[PROBES_RDMA];
	tracked->m = &maps;
	n_searches = 0;
	follow_probed_advance(x);
	posted_run_all();
	assert_int_equal(n_searches, 1);
	assert_int_equal(looked_with.n, 0);
	probes.n_functions = 3;
	for (int i = 0; i < 3; i++) {
		follow_probed_advance(x);
		posted_run_all();
		assert_int_equal(n_searches, 2);
		assert_int_equal(looked_with.n, 3);
	}
	probes.n_functions = 20;
	follow_probed_advance(x);
	posted_run_all();
	assert_int_equal(n_searches, 3);
	assert_int_equal(looked_with.n, 20);
	tracked->m = NULL;
	probed_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_jvm_that_comes_later_has_its_own_heap, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(other_places_are_attached_anew, set_up, tear_down),
		cmocka_unit_test(new_functions_start_a_search),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
