// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory events beyond their limits: what the kernel's maps have no room for. Functions of this
 * program stand in for the CUDA driver.
 */
#include "node/probe/gpu_scene_test.h"

#define HBM	   (HBM_ALLOC | HBM_INUSE)
#define PIECE	   (2ull << 20) /* as PF_GPU_PIECE */
#define UNMAPS_MAX 8192		/* as PF_GPU_UNMAPS_MAX */

/* ---- the driver ---- */

IN_SECTION(pf_driver) static int cu_map(uint64_t address, uint64_t bytes, uint64_t handle)
{
	return !address || !bytes || !handle;
}

IN_SECTION(pf_driver) static int cu_unmap(uint64_t address, uint64_t bytes)
{
	return !address || !bytes;
}

static void limits_open(struct scene *s, body_fn *body)
{
	struct probed *t = &s->probed;

	add_driver(t);
	add_entry(t, cu_map, PF_SITE_GPU_MAP, 1, 2, 3);
	add_entry(t, cu_unmap, PF_SITE_GPU_UNMAP, 1, 2, 0);
	gpu_open(s, body, HBM);
}

/* ---- maps that are full ---- */

/*
 * Fills a map, whose keys begin with a number, with n entries that belong to no process. held: the
 * programs' count of all entries; NULL: they do not count them.
 */
static void fill(int map, size_t key_bytes, size_t value_bytes, uint64_t n, int32_t *held)
{
	_cleanup_free_ uint8_t *keys = xcalloc(n, key_bytes), *values = xcalloc(n, value_bytes);
	uint32_t count = (uint32_t)n;

	for (uint64_t i = 0; i < n; i++)
		memcpy(keys + i * key_bytes, &(uint64_t){~i}, sizeof(i));
	(void)bpf_map_update_batch(map, keys, values, &count, NULL);
	if (held)
		*held += (int32_t)count;
}

static uint64_t at[8];

IN_SECTION(pf_short) static void allocate(void)
{
	status = cu_mem_alloc(&at[0], 1000);
}

IN_SECTION(pf_loop) static void body_alloc(struct truth *t)
{
	say_and_wait(t, 1);
	allocate();
	say_and_wait(t, 3);
	status = cu_mem_free(at[0]);
	allocate();
	say_and_wait(t, 4);
}

static void calls_beyond_the_table_are_counted(void **state)
{
	uint64_t before = lost("pending_full");
	struct scene s = {};

	(void)state;
	limits_open(&s, body_alloc);
	fill(scene_set(&s)->pending, sizeof(struct pf_pending_key), sizeof(struct pf_pending),
	     PF_PENDING_MAX, NULL);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n + s.w.inuse.n, 0);
	assert_int_equal(lost("pending_full") - before, 2);
	go(&s, 4); /* the drain has removed the calls of fill(), which belong to no process */
	assert_int_equal(s.w.alloc.bytes, 1000);
	assert_int_equal(s.w.inuse.bytes, 1000);
	gpu_close(&s);
}

static void memory_beyond_the_table_is_counted(void **state)
{
	uint64_t before = lost("live_evicted");
	struct scene s = {};

	(void)state;
	limits_open(&s, body_alloc);
	fill(scene_set(&s)->live, sizeof(struct pf_live_key), sizeof(struct pf_live), PF_LIVE_MAX,
	     scene_set(&s)->held.live);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 1000);
	assert_int_equal(s.w.inuse.n, 0);
	assert_int_equal(lost("live_evicted") - before, 1);
	go(&s, 4); /* the drain has removed the memory of fill(), which belongs to no process */
	assert_int_equal(s.w.inuse.bytes, 1000);
	assert_int_equal(lost("live_evicted") - before, 1);
	gpu_close(&s);
}

IN_SECTION(pf_loop) static void body_map(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_mem_create(&at[0], PIECE, on_device);
	status = cu_map(PIECE, PIECE, at[0]);
	say_and_wait(t, 3);
	status = cu_unmap(PIECE, (UNMAPS_MAX + 1) * PIECE);
	say_and_wait(t, 4);
}

static void objects_beyond_the_table_are_counted(void **state)
{
	uint64_t before = lost("gpu_full");
	struct scene s = {};

	(void)state;
	limits_open(&s, body_map);
	fill(bpf_map__fd(programs_of(&s)->maps.gpu_objects), sizeof(struct pf_live_key),
	     sizeof(struct pf_gpu_object), PF_GPU_OBJECTS_MAX, scene_set(&s)->held.objects);
	go(&s, 3);
	assert_int_equal(lost("gpu_full") - before, 1);
	assert_int_equal(s.w.inuse.bytes, PIECE);
	gpu_close(&s);
}

/* ---- the share of a process ---- */

IN_SECTION(pf_loop) static void body_share(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		status = cu_mem_alloc(&at[0], 1000);
		status = cu_map(step * PIECE, PIECE, 1);
		say_and_wait(t, step);
	}
}

/*
 * Sets the programs' counts of entries in each of the two maps (memory, objects): the process has
 * `own` entries, and `free` entries of the map are free.
 */
static void hold(const struct scene *s, int32_t own, int32_t free)
{
	const struct gpu_held *h = &scene_set(s)->held;
	uint32_t slot = kernel_entry(s).slot;

	assert_true(slot > 0);
	h->live[slot] = h->objects[slot] = own;
	h->live[0] = PF_LIVE_MAX - free;
	h->objects[0] = PF_GPU_OBJECTS_MAX - free;
}

/* Returns how many entries were refused in the next step. */
static uint64_t refused_in(struct scene *s, uint32_t step)
{
	uint64_t before = lost("gpu_full") + lost("live_evicted");

	go(s, step);
	return lost("gpu_full") + lost("live_evicted") - before;
}

static void a_process_has_at_most_as_many_entries_as_are_free(void **state)
{
	struct scene s = {};
	struct gpu_held *h;

	(void)state;
	limits_open(&s, body_share);
	h = &scene_set(&s)->held;
	hold(&s, 100, 101);
	assert_int_equal(refused_in(&s, 3), 0);
	hold(&s, 101, 101);
	assert_int_equal(refused_in(&s, 4), 2); /* the new memory, and its mapping */
	hold(&s, 0, 1);
	assert_int_equal(refused_in(&s, 5), 0);
	hold(&s, PF_LIVE_MAX / 4, PF_LIVE_MAX / 2);
	assert_int_equal(refused_in(&s, 6), 0);
	h->live[0] = (int32_t)map_count(scene_set(&s)->live, sizeof(struct pf_live_key));
	h->objects[0] = (int32_t)n_objects(&s);
	gpu_close(&s);
}

static void mappings_beyond_the_limit_are_counted(void **state)
{
	uint64_t before = lost("gpu_unseen");
	struct scene s = {};

	(void)state;
	limits_open(&s, body_map);
	go(&s, 3);
	assert_int_equal(lost("gpu_unseen"), before);
	go(&s, 4);
	assert_int_equal(lost("gpu_unseen") - before, 1);
	gpu_close(&s);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_beyond_the_table_are_counted),
		cmocka_unit_test(memory_beyond_the_table_is_counted),
		cmocka_unit_test(objects_beyond_the_table_are_counted),
		cmocka_unit_test(a_process_has_at_most_as_many_entries_as_are_free),
		cmocka_unit_test(mappings_beyond_the_limit_are_counted),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
