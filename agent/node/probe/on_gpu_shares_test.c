// SPDX-License-Identifier: Apache-2.0
/*
 * on-gpu: the launches whose work has not ended. All processes fill the same table, of which each
 * namespace has a share. The tests run once for each way to attach uprobes that this kernel has.
 */
#include "node/probe/neighbours_test.h"
#include "node/probe/on_gpu_scene_test.h"

IN_SECTION(pf_loop) static void body_share(struct truth *t)
{
	say_and_wait(t, 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(1, "share", 1);
	say_and_wait(t, 3);
	launch_short(2, 0, PODFLAME_CUDA_KERNEL); /* there is no room */
	report_kernel(2, "share", 1);
	launch_short(1, 0, PODFLAME_CUDA_KERNEL);
	report_kernel(1, "share", 1);
	say_and_wait(t, 4);
}

/*
 * A namespace may not have more launches than there are free entries, so that others find room. It
 * may still replace a launch of its own.
 */
static void a_namespace_has_at_most_as_many_launches_as_are_free(void **state)
{
	uint64_t before = lost("gpu_unlaunched");
	struct gpu_scene g = {};
	int32_t *held, *own;

	(void)state;
	gpu_begin(&g, body_share);
	held = scene_set(&g.s)->shares.of[SHARED_LAUNCHES]->held;
	own = &held[probes_share_of(g.s.p, 0)];
	held[0] = PF_GPU_LAUNCHES_MAX - 101;
	*own = 100;
	gpu_go(&g, 3);
	assert_int_equal(gpu_sum(&g, "short", "share").value, 1);
	assert_int_equal(*own, 101);
	gpu_go(&g, 4);
	assert_int_equal(gpu_sum(&g, "short", "share").value, 2);
	assert_int_equal(lost("gpu_unlaunched") - before, 1);
	assert_int_equal(*own, 101);
	held[0] = *own = 1;
	gpu_end(&g);
	assert_int_equal(held[0], 0);
}

#define FEW 10000 /* launches of the victim */

IN_SECTION(pf_loop) static void body_greedy(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t i = 1; i <= PF_GPU_LAUNCHES_MAX / CROWD; i++)
		launch_short(i, 0, PODFLAME_CUDA_KERNEL);
	say_and_wait(t, 3);
}

IN_SECTION(pf_loop) static void body_victim(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t i = 1; i <= FEW; i++)
		launch_short(i, 0, PODFLAME_CUDA_KERNEL);
	say_and_wait(t, 3);
	for (uint32_t i = 1; i <= FEW; i++)
		report_kernel(i, "victim", 1);
	say_and_wait(t, 4);
}

struct launches {
	struct pf_gpu_launch_key *keys;
	struct pf_gpu_launch *values;
	size_t n, cap_keys, cap_values;
};

static void launches_add(const void *key, const void *value, void *arg)
{
	struct launches *all = arg;

	GROW(all->keys, all->n, all->cap_keys);
	GROW(all->values, all->n, all->cap_values);
	all->keys[all->n] = *(const struct pf_gpu_launch_key *)key;
	all->values[all->n++] = *(const struct pf_gpu_launch *)value;
}

/* Changes the times of all launches, as if they had been made 31 s earlier. */
static void make_older(const struct neighbours *n)
{
	const struct on_gpu_bpf *o = scene_set(n->greedy)->object.bpf;
	int map = bpf_map__fd(o->maps.gpu_launches);
	struct launches all = {};

	assert_int_equal(probes_map_each(map, sizeof(*all.keys), sizeof(*all.values), false,
					 launches_add, &all),
			 0);
	for (size_t i = 0; i < all.n; i++) {
		all.values[i].time_ns -= 31 * NSEC_PER_SEC;
		assert_int_equal(bpf_map_update_elem(map, &all.keys[i], &all.values[i], BPF_EXIST),
				 0);
	}
	free(all.keys);
	free(all.values);
	scene_set(n->greedy)->snapshot_ns = 0; /* the next drain looks at the launches */
}

/*
 * When the victim begins, a crowd of processes of another namespace has filled the table. The
 * launches of that namespace wait for their work for less time then, but not those of the victim.
 */
static void launches_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {
		.set = PROBES_GPU, .events = ON_GPU, .n_greedy = CROWD, .add_probes = add_probes};
	uint64_t before = lost("gpu_unlaunched");

	(void)state;
	if (neighbours_have_run())
		return;
	neighbours_open(&n, body_greedy, body_victim);
	neighbours_fill(&n, 3);
	assert_int_equal(n.greedy[CROWD - 1].w.last_refused.ns, NS_GREEDY);
	assert_int_equal(n.greedy[CROWD - 1].w.last_refused.table, SHARED_LAUNCHES);
	go(&n.victim, 3);
	make_older(&n);
	go(&n.victim, 4);
	assert_int_equal(neighbours_table(&n, SHARED_LAUNCHES)->held[0], FEW);
	assert_int_equal(n.victim.w.alloc.n, FEW);
	assert_int_equal(n.victim.w.alloc.in_short, FEW); /* microseconds */
	assert_int_equal(n.victim.w.refused, 0);
	assert_int_equal(lost("gpu_unlaunched"), before);
	neighbours_close(&n);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_namespace_has_at_most_as_many_launches_as_are_free),
		cmocka_unit_test(launches_of_one_namespace_leave_room),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
