/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of stacks and frames: its budget, who makes room for whom, and readers at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hub/store/clickhouse/names.h"

#define THREADS 4
#define ROUNDS	300
#define A_ROUND 10 /* stacks that a reader holds at once */
#define POOL	100
#define SMALL	30 /* stacks for which the small cache has room, about */

static char *text_of(uint64_t id)
{
	return xasprintf("name %llu", (unsigned long long)id);
}

static struct kept_frame *make_frame(struct ch_share *s, uint64_t id)
{
	_cleanup_free_ char *name = text_of(id);
	size_t bytes = sizeof(struct kept_frame) + strlen(name) + 1;
	struct kept_frame *f;

	if (store_ch_share_take(s, bytes))
		return NULL;
	f = xcalloc(1, bytes);
	*f = (struct kept_frame){.id = id, .bytes = bytes};
	f->frame.name = strcpy((char *)(f + 1), name);
	return store_ch_share_put_frame(s, f);
}

static struct kept_stack *make_stack(struct ch_share *s, uint64_t id, struct kept_frame *frame)
{
	size_t bytes = sizeof(struct kept_stack) + sizeof(struct frame *);
	struct kept_stack *x;

	if (store_ch_share_take(s, bytes))
		return NULL;
	x = xcalloc(1, bytes);
	*x = (struct kept_stack){.id = id, .bytes = bytes, .n = 1};
	x->frames = (const struct frame **)(x + 1);
	x->frames[0] = &frame->frame;
	return store_ch_share_put_stack(s, x);
}

/* A stack of one frame, both with this id, as a reader finds or makes it. NULL: no room. */
static struct kept_stack *hold(struct ch_share *s, uint64_t id)
{
	struct kept_stack *x;
	struct kept_frame *f;

	if (store_ch_share_find_stack(s, id, &x))
		return NULL;
	if (x)
		return x;
	if (store_ch_share_find_frame(s, id, &f))
		return NULL;
	f = f ?: make_frame(s, id);
	if (!f)
		return NULL;
	x = make_stack(s, id, f);
	store_ch_share_drop_frame(s, f);
	return x;
}

static void assert_says(const struct kept_stack *x, uint64_t id)
{
	_cleanup_free_ char *name = text_of(id);

	assert_int_equal(x->id, id);
	assert_string_equal(x->frames[0]->name, name);
}

/* Holds the stack, sees what it says, and drops it. */
static void use(struct ch_cache *c, uint64_t id)
{
	struct ch_share s = {.cache = c};
	struct kept_stack *x = hold(&s, id);

	assert_non_null(x);
	assert_says(x, id);
	store_ch_share_drop_stack(&s, x);
	store_ch_share_end(&s);
}

static bool has(struct ch_cache *c, uint64_t id)
{
	struct ch_share s = {.cache = c};
	struct kept_stack *x;

	assert_int_equal(store_ch_share_find_stack(&s, id, &x), 0);
	if (x)
		store_ch_share_drop_stack(&s, x);
	store_ch_share_end(&s);
	return x;
}

static bool has_frame(struct ch_cache *c, uint64_t id)
{
	struct ch_share s = {.cache = c};
	struct kept_frame *f;

	assert_int_equal(store_ch_share_find_frame(&s, id, &f), 0);
	if (f)
		store_ch_share_drop_frame(&s, f);
	store_ch_share_end(&s);
	return f;
}

static size_t bytes_of(size_t n_stacks)
{
	return n_stacks * (sizeof(struct kept_stack) + sizeof(struct frame *) +
			   sizeof(struct kept_frame) + strlen("name 1") + 1);
}

/* ---- one reader ---- */

static void who_waits_longest_makes_room(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(3));

	(void)state;
	for (uint64_t id = 1; id <= 3; id++)
		use(c, id);
	use(c, 1);
	use(c, 4);
	assert_false(has(c, 2));
	assert_true(has(c, 1));
	assert_true(has(c, 3));
	assert_true(has(c, 4));
	store_ch_cache_free(c);
}

static uint64_t n_evicted(void)
{
	return counter_get(counter("store_names_evicted_total", NULL, NULL));
}

/* Uses other stacks until one has made room. */
static void evict_one(struct ch_cache *c, uint64_t first)
{
	for (uint64_t before = n_evicted(), id = first; n_evicted() == before; id++)
		use(c, id);
}

static void a_frame_goes_with_the_last_of_its_stacks(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(4));
	struct ch_share reader = {.cache = c};
	struct kept_frame *f = make_frame(&reader, 1);

	(void)state;
	for (uint64_t id = 1; id <= 2; id++) {
		struct ch_share s = {.cache = c};

		store_ch_share_drop_stack(&s, make_stack(&s, id, f));
		store_ch_share_end(&s);
	}
	store_ch_share_drop_frame(&reader, f);
	store_ch_share_end(&reader);
	evict_one(c, 3);
	assert_true(has_frame(c, 1));
	evict_one(c, 10);
	assert_false(has_frame(c, 1));
	store_ch_cache_free(c);
}

static void what_no_stack_has_does_not_stay(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(3));
	struct ch_share s = {.cache = c};

	(void)state;
	store_ch_share_drop_frame(&s, make_frame(&s, 1));
	store_ch_share_end(&s);
	assert_false(has_frame(c, 1));
	store_ch_cache_free(c);
}

/* ---- several readers ---- */

/* A reader may have what it leaves to others; what it holds stays where it is. */
static void a_reader_leaves_as_much_as_it_has(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(60));
	struct ch_share one = {.cache = c}, two = {.cache = c};
	struct kept_stack *x, *of_one[60], *of_two[60];
	size_t n = 0, m = 0;

	(void)state;
	while ((x = hold(&one, n + 10)))
		of_one[n++] = x;
	assert_in_range(n, 25, 30);
	assert_in_range(store_ch_share_room(&two), bytes_of(14), bytes_of(18));
	assert_int_equal(store_ch_share_take(&two, store_ch_share_room(&two) + 1), -EFBIG);
	while ((x = hold(&two, m + 1000)))
		of_two[m++] = x;
	assert_in_range(m, 10, 15);
	for (size_t i = 0; i < n; i++) {
		assert_says(of_one[i], i + 10);
		store_ch_share_drop_stack(&one, of_one[i]);
	}
	store_ch_share_end(&one);
	while (m)
		store_ch_share_drop_stack(&two, of_two[--m]);
	store_ch_share_end(&two);
	store_ch_cache_free(c); /* sees that no byte is left */
}

static void readers_share_what_both_have_read(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(60));
	struct ch_share one = {.cache = c}, two = {.cache = c};
	struct kept_frame *f = make_frame(&one, 1), *g = make_frame(&two, 1);
	struct kept_stack *x = make_stack(&one, 1, f), *y = make_stack(&two, 1, g);

	(void)state;
	assert_ptr_equal(f, g);
	assert_ptr_equal(x, y);
	store_ch_share_drop_frame(&one, f);
	store_ch_share_drop_stack(&one, x);
	store_ch_share_end(&one);
	assert_says(y, 1);
	store_ch_share_drop_frame(&two, g);
	store_ch_share_drop_stack(&two, y);
	store_ch_share_end(&two);
	store_ch_cache_free(c);
}

static void read_some(struct ch_cache *c, uint64_t *seed)
{
	struct ch_share s = {.cache = c};
	struct kept_stack *held[A_ROUND];
	uint64_t ids[A_ROUND];
	size_t n = 0;

	for (; n < A_ROUND; n++) {
		*seed = *seed * 6364136223846793005u + 1442695040888963407u;
		ids[n] = *seed >> 40 & 127;
		held[n] = hold(&s, ids[n] % POOL);
		if (!held[n])
			break;
	}
	for (size_t i = 0; i < n; i++) {
		assert_says(held[i], ids[i] % POOL);
		store_ch_share_drop_stack(&s, held[i]);
	}
	store_ch_share_end(&s);
}

static void *read_often(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)&seed;

	for (int i = 0; i < ROUNDS; i++)
		read_some(arg, &seed);
	return NULL;
}

static void readers_at_once(void **state)
{
	struct ch_cache *c = store_ch_cache_new(bytes_of(SMALL));
	uint64_t evicted = n_evicted();
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_often, c), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(n_evicted() > evicted);
	assert_in_range(counter_get(counter("store_names_bytes", NULL, NULL)), 1, bytes_of(SMALL));
	store_ch_cache_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_waits_longest_makes_room),
		cmocka_unit_test(a_frame_goes_with_the_last_of_its_stacks),
		cmocka_unit_test(what_no_stack_has_does_not_stay),
		cmocka_unit_test(a_reader_leaves_as_much_as_it_has),
		cmocka_unit_test(readers_share_what_both_have_read),
		cmocka_unit_test(readers_at_once),
	};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
