/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that the memory that runtimes may keep has a limit for one process, and one for all
 * processes together.
 */
#include "node/runtime/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB   (1u << 20)
#define MANY  4000
#define PIECE 4096

static size_t others[MANY];

static size_t fill(size_t *own, size_t piece, size_t most)
{
	while (runtime_cache_has_room(*own, piece, most))
		runtime_cache_set(own, *own + piece);
	return *own;
}

static int forget(void **state)
{
	(void)state;
	for (size_t i = 0; i < MANY; i++)
		runtime_cache_set(&others[i], 0);
	return 0;
}

static void a_process_has_its_own_limit(void **state)
{
	(void)state;
	assert_int_equal(fill(&others[0], PIECE, 8 * MIB), 8 * MIB);
	assert_false(runtime_cache_has_room(others[0], 1, 8 * MIB));
	runtime_cache_set(&others[0], 8 * MIB - 10);
	assert_true(runtime_cache_has_room(others[0], 10, 8 * MIB));
	assert_false(runtime_cache_has_room(0, SIZE_MAX / 2, 8 * MIB));
}

/* Each process behaves like a large one. Eight of them use all of the common limit. */
static void thousands_have_a_limit(void **state)
{
	size_t late = 0, all = 0;

	(void)state;
	for (size_t i = 0; i < 8; i++)
		all += fill(&others[i], PIECE, 3 * MIB / 2);
	assert_int_equal(all, 12 * MIB);
	assert_true(runtime_caches_are_full());
	/* this process gets its small share, and no more */
	assert_in_range(fill(&late, PIECE, 8 * MIB), MIB / 2, MIB);
	for (size_t i = 8; i < MANY; i++)
		all += fill(&others[i], PIECE, 8 * MIB);
	assert_in_range(all + late, 17 * MIB, 18 * MIB);
	/* The other processes end, and this process has room again. */
	forget(NULL);
	assert_int_equal(fill(&late, PIECE, 8 * MIB), 8 * MIB);
	runtime_cache_set(&late, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_process_has_its_own_limit, forget),
		cmocka_unit_test_teardown(thousands_have_a_limit, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
