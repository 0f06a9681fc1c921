// SPDX-License-Identifier: Apache-2.0
/*
 * GPU memory events of real processes: exact bytes by function, which memory lives, what the probes
 * cost, and both probe sets in one process. The tests run once for each way to attach uprobes that
 * this kernel has.
 */
#include "node/probe/gpu_scene_test.h"

/* ---- exact bytes by function, and what lives ---- */

static uint64_t at[8];

IN_SECTION(pf_short) static void allocate_some(void)
{
	status = cu_mem_alloc(&at[0], 1000);
	status = cu_mem_alloc(&at[1], 2000);
	status = cu_mem_alloc(&at[2], HBM_BYTES + 1);
	fails = true;
	status = cu_mem_alloc(&at[2], 30);
}

IN_SECTION(pf_long) static void allocate_and_free(void)
{
	for (int i = 0; i < 100; i++) {
		status = cu_mem_alloc(&at[3], 300);
		status = cu_mem_free(at[3]);
	}
	status = cu_mem_alloc(&at[3], 70);
}

static void *free_it(void *address)
{
	status = cu_mem_free(*(uint64_t *)address);
	return NULL;
}

IN_SECTION(pf_loop) static void body_exact(struct truth *t)
{
	pthread_t other;

	say_and_wait(t, 1);
	allocate_some();
	allocate_and_free();
	say_and_wait(t, 3);
	pthread_create(&other, NULL, free_it, &at[0]);
	pthread_join(other, NULL);
	fails = true;
	status = cu_mem_free(at[1]);
	say_and_wait(t, 4);
	status = cu_mem_free(at[1]);
	status = cu_mem_free(at[3]);
	say_and_wait(t, 5);
}

static void bytes_are_exact_and_what_is_freed_is_gone(void **state)
{
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_exact, HBM_ALLOC | HBM_INUSE);
	go(&s, 3);
	assert_int_equal(s.w.alloc.in_short, 3000);
	assert_int_equal(s.w.alloc.in_long, 100 * 300 + 70);
	assert_int_equal(s.w.alloc.n, 103);
	assert_int_equal(s.w.inuse.in_short, 3000);
	assert_int_equal(s.w.inuse.in_long, 70);
	assert_int_equal(s.w.stackless, 0);
	assert_int_equal(n_held(&s), 3);
	go(&s, 4);
	assert_int_equal(s.w.inuse.in_short, 2000); /* a free that fails frees nothing */
	assert_int_equal(n_held(&s), 2);
	assert_int_equal(s.w.empty, 0);
	go(&s, 5);
	assert_int_equal(s.w.inuse.bytes, 0);
	assert_true(s.w.empty > 0);
	gpu_close(&s);
}

/* The probes of frees are attached only for hbm-inuse. */
static void an_event_alone_counts_as_with_the_other(void **state)
{
	struct scene s = {};
	unsigned n_links;

	(void)state;
	gpu_open(&s, body_exact, HBM_ALLOC);
	n_links = scene_set(&s)->n_links;
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 3000 + 100 * 300 + 70);
	assert_int_equal(s.w.snapshots, 0);
	gpu_close(&s);
	s = (struct scene){};
	gpu_open(&s, body_exact, HBM_INUSE);
	assert_true(mode_at_most > UPROBE_SINGLE || scene_set(&s)->n_links == n_links + 2);
	go(&s, 3);
	assert_int_equal(s.w.alloc.n, 0);
	assert_int_equal(s.w.inuse.bytes, 3070);
	gpu_close(&s);
}

/* ---- what the probes cost ---- */

#define MORE 16 /* PF_SITE_MORE of the site */

IN_SECTION(pf_driver) static int cu_mem_alloc_stepped(uint64_t *ret, size_t bytes)
{
	return cu_give(ret, bytes);
}

IN_SECTION(pf_loop) static void body_few(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3; step < 13; step++) {
		for (int i = 0; i < 10; i++)
			status = cu_mem_alloc_stepped(&at[0], 10);
		say_and_wait(t, step);
	}
}

static uint64_t cost_told(const struct scene *s)
{
	_cleanup_free_ struct probe_usage *u = NULL;
	uint64_t hits = 0;
	size_t n;

	assert_int_equal(probes_usage(s->p, &u, &n), 0);
	for (size_t i = 0; i < n; i++)
		hits += u[i].event == EVENT_HBM_ALLOC ? u[i].hits : 0;
	return hits;
}

/* The programs add up only one hit in 16, as 16 hits. The sum is right after few calls, too. */
static void few_calls_cost_what_they_cost(void **state)
{
	struct scene s = {};
	uint64_t before;

	(void)state;
	add_site(&s.probed, cu_mem_alloc_stepped,
		 (struct pf_site){.kind = PF_SITE_GPU_ALLOC,
				  .ptr_arg = 1,
				  .size_arg = 2,
				  .flags = MORE << PF_SITE_FACTOR_BITS});
	gpu_open(&s, body_few, HBM_ALLOC);
	before = cost_told(&s);
	for (uint32_t step = 3; step < 13; step++) {
		uint64_t told, hits;

		go(&s, step);
		told = cost_told(&s) - before;
		hits = kernel_entry(&s).hits;
		assert_true(hits >= (step - 2) * 10 * (MORE + 2));
		assert_true(told < hits + 16 && told + 16 > hits);
	}
	gpu_close(&s);
}

/* ---- detached in the middle of a call ---- */

static struct truth *truth;

IN_SECTION(pf_driver) static int cu_mem_alloc_slow(uint64_t *ret, size_t bytes)
{
	*ret = next_address;
	next_address += bytes;
	say_and_wait(truth, 3);
	return SUCCESS;
}

IN_SECTION(pf_loop) static void body_slow(struct truth *t)
{
	truth = t;
	say_and_wait(t, 1);
	status = cu_mem_alloc_slow(&at[0], 100);
	say_and_wait(t, 4);
	status = cu_mem_alloc(&at[0], 20);
	say_and_wait(t, 5);
}

static void a_call_is_forgotten_with_its_process(void **state)
{
	struct scene s = {};

	(void)state;
	add_driver(&s.probed);
	add_entry(&s.probed, cu_mem_alloc_slow, PF_SITE_GPU_ALLOC, 1, 2, 0);
	gpu_open(&s, body_slow, HBM_ALLOC);
	go(&s, 3);
	assert_int_equal(n_pending(&s), 1);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(n_pending(&s), 0);
	assert_int_equal(scene_attach(&s, HBM_ALLOC), 0);
	go(&s, 4);
	go(&s, 5);
	assert_int_equal(s.w.alloc.bytes, 20);
	gpu_close(&s);
}

/* ---- kernels that lack something ---- */

__asm__(".pushsection pf_odd,\"ax\",@progbits\n"
	"pf_refused:\n"
	"	hlt\n"
	"	ret\n"
	".popsection\n");
extern const char pf_refused[];

static void where_a_free_cannot_be_probed_is_hbm_alloc(void **state)
{
	struct probes_refused refused = {};
	struct scene s = {};

	(void)state;
	gpu_open(&s, body_exact, HBM_ALLOC | HBM_INUSE);
	add_entry(&s.probed, pf_refused, PF_SITE_GPU_FREE, 1, 0, 0);
	assert_int_equal(
		probes_attach_change(s.p, s.a, &s.probed.proc, &s.probed.file, 1, &refused), 0);
	assert_true(refused.inuse);
	go(&s, 3);
	assert_int_equal(s.w.alloc.bytes, 3000 + 100 * 300 + 70);
	assert_int_equal(s.w.inuse.n, 0);
	gpu_close(&s);
}

static const struct support *support_of(const struct scene *s, enum event e)
{
	size_t n;

	return &probes_support(s->p, &n)[e];
}

/* No event of GPU memory works without probed returns. */
static void where_returns_kill_is_no_gpu_memory(void **state)
{
	struct scene s = {.set = PROBES_GPU_MEMORY};

	(void)state;
	need_mode();
	add_driver(&s.probed);
	s.c = child_start(body_exact, NULL);
	s.w = (struct memory_watch){.pid = s.c.pid};
	s.p = open_in_mode();
	s.p->uprobes->returns = -EPERM;
	s.p->uprobes->returns_tried = true;
	assert_int_equal(list(&s, HBM_ALLOC | HBM_INUSE | ALLOC, 1), -EOPNOTSUPP);
	get_known(&s);
	assert_int_equal(scene_attach(&s, HBM_ALLOC), -EOPNOTSUPP);
	assert_int_equal(scene_attach(&s, HBM_ALLOC | HBM_INUSE), -EOPNOTSUPP);
	for (enum event e = EVENT_HBM_ALLOC; e <= EVENT_HBM_INUSE; e++) {
		assert_false(support_of(&s, e)->ok);
		assert_non_null(strstr(support_of(&s, e)->reason, "a probed return kills"));
	}
	assert_true(support_of(&s, EVENT_MEM_ALLOC)->ok);
	scene_close(&s);
}

/* ---- both sets in one process ---- */

IN_SECTION(pf_short) static void allocate_both(void)
{
	keep[0] = malloc(111);
	status = cu_mem_alloc(&at[0], 1000);
}

IN_SECTION(pf_loop) static void body_both(struct truth *t)
{
	say_and_wait(t, 1);
	for (uint32_t step = 3;; step++) {
		allocate_both();
		say_and_wait(t, step);
	}
}

struct both {
	struct scene s; /* the scene of GPU memory */
	struct probed libc;
	struct attached *memory;
	struct memory_watch w;
};

static int attach_memory(struct both *b)
{
	struct probes_refused refused = {};

	b->libc.proc =
		(struct pf_mem_proc){.exec_id = b->s.w.proc.exec_id, .event_mask = ALLOC | INUSE};
	return probes_attach(b->s.p, PROBES_MEMORY,
			     (struct process_id){b->s.w.proc.start_boottime_ns, b->s.c.pid},
			     &b->libc.proc, &b->libc.file, 1, &b->memory, &refused);
}

static void both_open(struct both *b)
{
	gpu_open(&b->s, body_both, HBM_ALLOC | HBM_INUSE);
	want(&b->s, HBM_ALLOC | HBM_INUSE | ALLOC | INUSE, 1);
	probe_libc(&b->libc);
	b->w = (struct memory_watch){.pid = b->s.c.pid};
	b->s.w.also = &b->w;
	assert_int_equal(attach_memory(b), 0);
	assert_int_equal(attach_memory(b), -EEXIST);
}

static void check_both(const struct both *b, uint64_t gpu, uint64_t memory)
{
	assert_int_equal(b->s.w.alloc.in_short, gpu);
	assert_int_equal(b->s.w.inuse.in_short, gpu);
	assert_int_equal(b->w.alloc.in_short, memory);
	assert_int_equal(b->w.inuse.in_short, memory);
}

/* Each set is attached and detached without the other, and keeps what it knows. */
static void a_process_is_probed_for_both_sets(void **state)
{
	struct both b = {};
	unsigned snapshots;

	(void)state;
	both_open(&b);
	go(&b.s, 3);
	check_both(&b, 1000, 111);
	b.memory = probes_detach(b.s.p, b.memory);
	snapshots = b.w.snapshots;
	go(&b.s, 4);
	assert_int_equal(b.s.w.inuse.in_short, 2000);
	assert_int_equal(b.w.alloc.in_short, 111);
	assert_int_equal(b.w.snapshots, snapshots);
	assert_int_equal(attach_memory(&b), 0);
	go(&b.s, 5);
	assert_int_equal(b.s.w.inuse.in_short, 3000);
	assert_int_equal(b.w.inuse.in_short, 111);
	b.s.a = probes_detach(b.s.p, b.s.a);
	go(&b.s, 6);
	assert_int_equal(b.s.w.alloc.in_short, 3000);
	assert_int_equal(b.w.alloc.in_short, 333);
	assert_int_equal(b.w.inuse.in_short, 222);
	b.memory = probes_detach(b.s.p, b.memory);
	close(b.libc.file.fd);
	gpu_close(&b.s);
}

/* Both sets are detached in one call, and an urgent detach concerns both. */
static void both_sets_leave_together(void **state)
{
	struct both b = {};
	uint64_t moves;

	(void)state;
	both_open(&b);
	b.memory = probes_detach(b.s.p, b.memory);
	probes_leave(b.s.a);
	assert_int_equal(attach_memory(&b), -EAGAIN);
	b.s.a = probes_detach(b.s.p, b.s.a);
	moves = probes_moves(b.s.p);
	assert_int_equal(attach_memory(&b), 0);
	assert_int_equal(scene_attach(&b.s, HBM_ALLOC | HBM_INUSE), 0);
	assert_true(probes_moves(b.s.p) > moves);
	go(&b.s, 3);
	check_both(&b, 1000, 111);
	probes_detach_all(b.s.p, (struct attached *[]){b.memory, b.s.a}, 2);
	b.s.a = NULL;
	assert_null(probes_set_loaded(b.s.p, PROBES_MEMORY)->attached);
	assert_int_equal(map_count(probes_set_loaded(b.s.p, PROBES_MEMORY)->live,
				   sizeof(struct pf_live_key)),
			 0);
	go(&b.s, 4);
	check_both(&b, 1000, 111);
	close(b.libc.file.fd);
	gpu_close(&b.s);
}

static int run_mode(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_exact_and_what_is_freed_is_gone),
		cmocka_unit_test(an_event_alone_counts_as_with_the_other),
		cmocka_unit_test(few_calls_cost_what_they_cost),
		cmocka_unit_test(a_call_is_forgotten_with_its_process),
		cmocka_unit_test(where_a_free_cannot_be_probed_is_hbm_alloc),
		cmocka_unit_test(where_returns_kill_is_no_gpu_memory),
		cmocka_unit_test(a_process_is_probed_for_both_sets),
		cmocka_unit_test(both_sets_leave_together),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run_mode);
}
