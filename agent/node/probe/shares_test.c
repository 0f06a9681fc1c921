// SPDX-License-Identifier: Apache-2.0
/*
 * A process of one namespace fills the tables that all selected processes share. The profile of a
 * process of another namespace is whole.
 */
#include "node/probe/neighbours_test.h"

/* ---- memory in use ---- */

#define TOO_MANY (PF_LIVE_MAX + 10000)
#define FEW	 1000 /* blocks that the victim allocates before the greedy process, and after it */

static void body_greedy(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < TOO_MANY; i++)
		keep[0] = malloc(24);
	say_and_wait(t, 3);
	for (int i = 0; i < TOO_MANY; i++)
		keep[0] = malloc(24);
	say_and_wait(t, 4);
}

static void body_victim(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < FEW; i++)
		keep[i] = malloc(40);
	say_and_wait(t, 3);
	for (int i = 0; i < FEW; i++)
		keep[FEW + i] = malloc(40);
	say_and_wait(t, 4);
	for (int i = 0; i < 2 * FEW; i++)
		free((void *)keep[i]);
	say_and_wait(t, 5);
}

static void what_one_namespace_keeps_takes_no_room_of_another(void **state)
{
	struct neighbours n = {};
	struct scene *greedy = n.greedy, *victim = &n.victim;

	(void)state;
	neighbours_open(&n, body_greedy, body_victim);
	go(victim, 3);
	go(greedy, 3);
	go(victim, 4);
	go(greedy, 4);
	watch_all(victim->p, &victim->w);
	assert_int_equal(victim->w.inuse.n, 2 * FEW);
	assert_int_equal(victim->w.inuse.bytes, 2 * FEW * 40);
	assert_int_equal(victim->w.refused, 0);
	/* As long as the others leave it, the namespace has most of the table. */
	watch_all(greedy->p, &greedy->w);
	assert_in_range(greedy->w.inuse.n, PF_LIVE_MAX / 4 * 3 - 2 * FEW, PF_LIVE_MAX);
	assert_true(greedy->w.refused > 0);
	assert_int_equal(greedy->w.last_refused.ns, NS_GREEDY);
	assert_int_equal(greedy->w.last_refused.table, SHARED_LIVE);
	assert_int_equal(greedy->w.last_refused.event, EVENT_MEM_INUSE);
	assert_int_equal(greedy->w.inuse.n + greedy->w.evicted, 2 * TOO_MANY);
	go(victim, 5);
	assert_int_equal(victim->w.inuse.bytes, 0);
	neighbours_close(&n);
}

/* What is gone leaves its room: a process can fill its share again and again. */
static void ended_processes_have_no_share(void **state)
{
	struct neighbours n = {};
	const int32_t *held;

	(void)state;
	neighbours_open(&n, body_greedy, body_victim);
	held = neighbours_table(&n, SHARED_LIVE)->held;
	go(n.greedy, 3);
	go(&n.victim, 3);
	assert_true(held[0] > PF_LIVE_MAX / 2);
	n.greedy->a = probes_detach(n.greedy->p, n.greedy->a);
	assert_int_equal(held[0], FEW);
	assert_int_equal(scene_attach(n.greedy, INUSE), 0);
	n.greedy->w.evicted = 0;
	go(n.greedy, 4);
	assert_true(n.greedy->w.inuse.n >= PF_LIVE_MAX / 4 * 3 - FEW);
	go(&n.victim, 4);
	go(&n.victim, 5);
	n.greedy->a = probes_detach(n.greedy->p, n.greedy->a);
	assert_int_equal(held[0], 0);
	assert_int_equal(scene_attach(n.greedy, INUSE), 0);
	neighbours_close(&n);
}

/* ---- counts of a generation ---- */

#define COUNTS	   1024
#define MANY_STEPS 12
#define MANY	   (1u << MANY_STEPS) /* stacks */

/* Allocates; each way is another stack. */
static __attribute__((noinline, noclone)) void by_way(unsigned way, unsigned steps)
{
	if (!steps)
		keep[0] = malloc(24);
	else if (way & 1) {
		by_way(way >> 1, steps - 1);
		__asm__ volatile("# odd");
	} else {
		by_way(way >> 1, steps - 1);
		__asm__ volatile("# even");
	}
}

static void body_many_stacks(struct truth *t)
{
	for (uint32_t step = 1;; step = step == 1 ? 3 : step + 1) {
		say_and_wait(t, step);
		for (unsigned way = 0; way < MANY; way++)
			by_way(way, MANY_STEPS);
	}
}

/*
 * The greedy process has filled its share of the counts when the victim begins. That is so in each
 * generation.
 */
static void counts_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {.events = ALLOC};
	struct memory_watch *w = &n.victim.w;
	uint64_t before = lost("counts_full");

	(void)state;
	share_probes = true;
	shared_probes = open_probes((struct probe_config){
		.use_list = true, .max_sample_hz = 99, .count_entries = COUNTS});
	neighbours_open(&n, body_many_stacks, body_victim);
	for (uint32_t step = 3; step <= 4; step++) {
		w->others = 0;
		n.greedy->c.truth->ready = 2;
		await(&n.greedy->c, step);
		go(&n.victim, step);
		assert_int_equal(w->alloc.n, (step - 2) * FEW);
		assert_in_range(w->others, COUNTS / 4 * 3, COUNTS);
		assert_int_equal(w->others + lost("counts_full") - before, MANY);
		assert_int_equal(w->last_refused.ns, NS_GREEDY);
		assert_int_equal(w->last_refused.table, SHARED_COUNTS);
		before = lost("counts_full");
	}
	neighbours_close(&n);
	close_shared(state);
	share_probes = false;
}

/* ---- records that user space has not read yet ---- */

#define RING_BYTES (128u << 10)

/* Its stack is longer than those of the greedy process, so it does not fit where those do not. */
static void body_deep_victim(struct truth *t)
{
	say_and_wait(t, 1);
	for (int i = 0; i < FEW; i++)
		by_way(0, 4 * MANY_STEPS);
	say_and_wait(t, 3);
}

/*
 * The greedy process has sent as many stacks as fit when the victim begins. No drain has read them
 * by then.
 */
static void records_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {.events = ALLOC};
	uint64_t before =
		counter_get(counter("podflame_records_dropped_total", "reason", "ring_full"));
	struct memory_watch *w = &n.victim.w;

	(void)state;
	share_probes = true;
	shared_probes = open_probes((struct probe_config){
		.use_list = true, .max_sample_hz = 99, .ring_bytes = RING_BYTES});
	neighbours_open(&n, body_many_stacks, body_deep_victim);
	n.greedy->c.truth->ready = 2;
	await(&n.greedy->c, 3);
	assert_in_range(n.greedy->p->ring_shares->held[0], RING_BYTES / 2, RING_BYTES);
	go(&n.victim, 3);
	assert_true(counter_get(counter("podflame_records_dropped_total", "reason", "ring_full")) >
		    before);
	assert_int_equal(w->alloc.n, FEW);
	assert_int_equal(w->stackless, 0);
	assert_true(w->others > FEW); /* and the greedy process has samples */
	assert_int_equal(w->last_refused.ns, NS_GREEDY);
	assert_int_equal(w->last_refused.table, SHARED_RING);
	assert_int_equal(n.greedy->p->ring_shares->held[0], 0); /* all are read */
	neighbours_close(&n);
	close_shared(state);
	share_probes = false;
}

/* ---- calls that have not returned ---- */

/* As many calls as fit, of threads of the namespace that never return. */
static void fill_pending(const struct neighbours *n)
{
	struct probe_set_state *set = scene_set(n->greedy);
	uint32_t share = probes_share_of(n->greedy->p, NS_GREEDY);
	int32_t *held = neighbours_table(n, SHARED_PENDING)->held;
	struct pf_pending call = {
		.live.key = {.start_boottime_ns = n->greedy->w.proc.start_boottime_ns,
			     .tgid = n->greedy->c.pid},
		.live.time_ns = now_boot_ns() + 60 * NSEC_PER_SEC, /* as if it had just begun */
	};
	uint64_t i = 0;

	call.live.key.share = share;
	for (; i < PF_PENDING_MAX / 4 * 3; i++) {
		struct pf_pending_key key = {.pid_tgid = ~i};

		assert_int_equal(bpf_map_update_elem(set->pending, &key, &call, BPF_ANY), 0);
	}
	held[0] += (int32_t)i;
	held[share] += (int32_t)i;
}

static void calls_that_do_not_return_leave_room(void **state)
{
	struct neighbours n = {};
	uint64_t before = lost("pending_full");

	(void)state;
	neighbours_open(&n, body_greedy, body_victim);
	fill_pending(&n);
	go(&n.victim, 3);
	assert_int_equal(lost("pending_full"), before);
	assert_int_equal(n.victim.w.inuse.n, FEW);
	go(n.greedy, 3);
	assert_int_equal(lost("pending_full") - before, TOO_MANY);
	assert_int_equal(n.greedy->w.last_refused.ns, NS_GREEDY);
	assert_int_equal(n.greedy->w.last_refused.table, SHARED_PENDING);
	n.greedy->a = probes_detach(n.greedy->p, n.greedy->a);
	assert_int_equal(neighbours_table(&n, SHARED_PENDING)->held[0], 0);
	assert_int_equal(scene_attach(n.greedy, INUSE), 0);
	neighbours_close(&n);
}

/* ---- the numbers of namespaces ---- */

static void select_namespaces(struct probes *p, uint64_t first, size_t n)
{
	_cleanup_free_ struct listed_process *l = xcalloc(n, sizeof(*l));

	for (size_t i = 0; i < n; i++)
		l[i] = (struct listed_process){.id = {1, (uint32_t)(1 + i)}, .ns = first + i};
	assert_int_equal(probes_list(p, l, n), 0);
}

static void numbers_go_to_who_needs_them(void **state)
{
	struct probes *p = open_in_mode();
	const uint32_t most = PF_SHARE_CGROUPS - 1;
	uint32_t first, last;

	(void)state;
	select_namespaces(p, 1, most);
	first = probes_share_of(p, 1);
	last = probes_share_of(p, most);
	assert_in_range(first, 1, most);
	assert_in_range(last, 1, most);
	assert_int_not_equal(first, last);
	assert_int_equal(probes_share_of(p, most + 1), 0); /* each number is in use */
	select_namespaces(p, 2, most);
	assert_int_equal(probes_share_of(p, most), last);
	/* The namespace 1 is in the filter no more, so another one has its number. */
	assert_int_equal(probes_share_of(p, most + 1), first);
	probes_free(p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_namespace_keeps_takes_no_room_of_another),
		cmocka_unit_test(ended_processes_have_no_share),
		cmocka_unit_test(counts_of_one_namespace_leave_room),
		cmocka_unit_test(records_of_one_namespace_leave_room),
		cmocka_unit_test(calls_that_do_not_return_leave_room),
		cmocka_unit_test(numbers_go_to_who_needs_them),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
