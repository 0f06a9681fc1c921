// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent does after a second search for the places where a process allocates. This thread
 * does the work of the workers.
 */
#include "node/follow/testprobed.h"

#define EVENTS (1u << EVENT_MEM_INUSE)

static struct mapping library = {.inode = 1};
static struct mappings maps = {.items = &library, .n = 1, .refs = 1};
static struct alloc_site items[2] = {{.file_offset = 64, .address = 4160},
				     {.file_offset = 128, .address = 4224}};
static struct alloc_sites found; /* what the next search finds */

static int find_sites(struct files *f, const struct mappings *m, unsigned event_mask,
		      struct alloc_sites **ret)
{
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_jvm_that_comes_later_has_its_own_heap, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(other_places_are_attached_anew, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
