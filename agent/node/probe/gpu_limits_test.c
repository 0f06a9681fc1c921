// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory events beyond their limits: what the kernel's maps have no room for. Functions of this
 * program stand in for the CUDA driver.
 */
#include "node/probe/gpu_scene_test.h"
#include "node/probe/neighbours_test.h"

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

IN_SECTION(pf_driver) static int cu_mem_release(uint64_t handle)
{
	return !handle;
}

static void add_limits(struct probed *t)
{
	add_driver(t);
	add_entry(t, cu_map, PF_SITE_GPU_MAP, 1, 2, 3);
	add_entry(t, cu_unmap, PF_SITE_GPU_UNMAP, 1, 2, 0);
	add_entry(t, cu_mem_release, PF_SITE_GPU_RELEASE, 1, 0, 0);
}

static void limits_open(struct scene *s, body_fn *body)
{
	add_limits(&s->probed);
	gpu_open(s, body, HBM);
}

/* ---- maps that are full ---- */

/*
 * Fills a map, whose keys begin with a number, with n entries that belong to no process. held: the
 * programs' count of all entries
 */
static void fill(int map, size_t key_bytes, size_t value_bytes, uint64_t n, int32_t *held)
{
	_cleanup_free_ uint8_t *keys = xcalloc(n, key_bytes), *values = xcalloc(n, value_bytes);
	uint32_t count = (uint32_t)n;

	for (uint64_t i = 0; i < n; i++)
		memcpy(keys + i * key_bytes, &(uint64_t){~i}, sizeof(i));
	(void)bpf_map_update_batch(map, keys, values, &count, NULL);
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
	     PF_PENDING_MAX, scene_set(&s)->shares.of[SHARED_PENDING]->held);
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
	     scene_set(&s)->shares.of[SHARED_LIVE]->held);
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
	     sizeof(struct pf_gpu_object), PF_GPU_OBJECTS_MAX,
	     scene_set(&s)->shares.of[SHARED_OBJECTS]->held);
	go(&s, 3);
	assert_int_equal(lost("gpu_full") - before, 1);
	assert_int_equal(s.w.inuse.bytes, PIECE);
	gpu_close(&s);
}

/* ---- the share of a namespace ---- */

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
 * Sets the programs' counts of entries in each of the two maps (memory, objects): the namespace of
 * the process has `own` entries, and `free` entries of the map are free.
 */
static void hold(const struct scene *s, int32_t own, int32_t free)
{
	const struct shared_tables *t = &scene_set(s)->shares;
	uint32_t share = probes_share_of(s->p, 0);

	assert_true(share > 0);
	t->of[SHARED_LIVE]->held[share] = t->of[SHARED_OBJECTS]->held[share] = own;
	t->of[SHARED_LIVE]->held[0] = PF_LIVE_MAX - free;
	t->of[SHARED_OBJECTS]->held[0] = PF_GPU_OBJECTS_MAX - free;
}

/* Returns how many entries were refused in the next step. */
static uint64_t refused_in(struct scene *s, uint32_t step)
{
	uint64_t before = lost("gpu_full") + lost("live_evicted");

	go(s, step);
	return lost("gpu_full") + lost("live_evicted") - before;
}

static void a_namespace_has_at_most_as_many_entries_as_are_free(void **state)
{
	struct scene s = {};

	(void)state;
	limits_open(&s, body_share);
	hold(&s, 100, 101);
	assert_int_equal(refused_in(&s, 3), 0);
	assert_int_equal(s.w.refused, 0);
	hold(&s, 101, 101);
	assert_int_equal(refused_in(&s, 4), 2); /* the new memory, and its mapping */
	assert_int_equal(s.w.refused, 2);
	hold(&s, 0, 1);
	assert_int_equal(refused_in(&s, 5), 0);
	hold(&s, PF_LIVE_MAX / 4, PF_LIVE_MAX / 2);
	assert_int_equal(refused_in(&s, 6), 0);
	hold(&s, (int32_t)n_objects(&s), PF_GPU_OBJECTS_MAX - (int32_t)n_objects(&s));
	scene_set(&s)->shares.of[SHARED_LIVE]->held[0] =
		scene_set(&s)->shares.of[SHARED_LIVE]->held[probes_share_of(s.p, 0)] =
			(int32_t)map_count(scene_set(&s)->live, sizeof(struct pf_live_key));
	gpu_close(&s);
}

#define FEW 10000 /* mappings of the victim */

IN_SECTION(pf_loop) static void body_greedy(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint64_t i = 1; i <= PF_GPU_OBJECTS_MAX / CROWD; i++)
		status = cu_map(i * PIECE, PIECE, 1);
	say_and_wait(t, 3);
}

IN_SECTION(pf_loop) static void body_victim(struct truth *t)
{
	say_and_wait(t, 1);
	status = cu_mem_create(&at[0], PIECE, on_device);
	for (uint64_t i = 1; i <= FEW; i++)
		status = cu_map(i * PIECE, PIECE, at[0]);
	status = cu_mem_release(at[0]);
	say_and_wait(t, 3);
	for (uint64_t i = 1; i <= FEW; i++)
		status = cu_unmap(i * PIECE, PIECE);
	say_and_wait(t, 4);
}

/* When the victim begins, a crowd of processes of another namespace has filled the table. */
static void objects_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {.set = PROBES_GPU_MEMORY,
			       .events = HBM,
			       .n_greedy = CROWD,
			       .add_probes = add_limits};
	struct memory_watch *w = &n.victim.w;
	uint64_t before;

	(void)state;
	if (neighbours_have_run())
		return;
	neighbours_open(&n, body_greedy, body_victim);
	neighbours_fill(&n, 3);
	assert_true(lost("gpu_full") > 0);
	assert_int_equal(n.greedy[CROWD - 1].w.last_refused.ns, NS_GREEDY);
	assert_int_equal(n.greedy[CROWD - 1].w.last_refused.table, SHARED_OBJECTS);
	before = lost("gpu_full");
	go(&n.victim, 3);
	assert_int_equal(w->inuse.bytes, PIECE); /* mapped, so the release does not free it */
	go(&n.victim, 4);
	assert_int_equal(w->inuse.bytes, 0);
	assert_int_equal(w->refused, 0);
	assert_int_equal(lost("gpu_full"), before);
	neighbours_close(&n);
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
		cmocka_unit_test(a_namespace_has_at_most_as_many_entries_as_are_free),
		cmocka_unit_test(objects_of_one_namespace_leave_room),
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
