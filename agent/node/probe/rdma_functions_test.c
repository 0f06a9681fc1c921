// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of RDMA providers, which have no symbols: how the programs learn them from the
 * objects of a process, and report them. The tests run once for each way to attach uprobes that
 * this kernel has.
 */
#include "node/probe/neighbours_test.h"
#include "node/probe/rdma_scene_test.h"

static struct testverbs_context *volatile domain[] = {&contexts[0]}; /* struct ibv_pd */

/* ---- functions of providers ---- */

IN_SECTION(pf_loop) static void body_functions(struct truth *t)
{
	say_and_wait(t, 1);
	modify_qp(&queues[0].base); /* a queue pair that is older than the probes */
	say_and_wait(t, 3);
	qp_to_qp_ex(&queues[1].base);
	modify_qp(&queues[0].base);
	say_and_wait(t, 4);
	qp_to_qp_ex(NULL);
	modify_qp((void *)8);
	say_and_wait(t, 5);
}

static uint64_t known_function(const struct pf_rdma_functions *f, enum pf_rdma_slot slot)
{
	uint64_t address = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		if (f->items[i].slot != slot)
			continue;
		assert_int_equal(address, 0); /* each function is known only once */
		address = f->items[i].address;
	}
	return address;
}

static int functions_of(const struct scene *s, struct pf_rdma_functions *ret)
{
	const struct process_id id = {s->w.proc.start_boottime_ns, s->c.pid};

	return probes_rdma_functions(s->p, s->set, id, s->w.proc.exec_id, ret);
}

/* Lets the process, which is at the step `was`, work until the step `until`. Drains the records. */
static void functions_go(struct scene *s, uint32_t until, uint32_t was)
{
	s->w.known = false;
	s->c.truth->ready = was;
	await(&s->c, until);
	watch_drain(s->p, &s->w, false);
}

#define AT(function) ((uintptr_t)(function))

/*
 * When the process passes an object of libibverbs to a probed function, the programs find the
 * functions of the device's provider in it.
 */
static void functions_are_learned_and_reported(void **state)
{
	struct pf_rdma_functions f;
	struct scene s = {.set = PROBES_RDMA};

	(void)state;
	add_library(&s.probed);
	scene_open(&s, body_functions, RDMA, 0);
	assert_int_equal(functions_of(&s, &f), -ENOENT);
	functions_go(&s, 3, 2);
	assert_true(s.w.known);
	assert_int_equal(s.w.proc.what, RAW_PROC_MAPS);
	assert_int_equal(functions_of(&s, &f), 0);
	assert_int_equal(f.n, 3);
	assert_int_equal(known_function(&f, PF_RDMA_POST_SEND), AT(post_send));
	assert_int_equal(known_function(&f, PF_RDMA_POST_RECV), AT(post_recv));
	assert_int_equal(known_function(&f, PF_RDMA_POST_SRQ_RECV), AT(post_srq_recv));
	functions_go(&s, 4, 2);
	assert_true(s.w.known);
	assert_int_equal(functions_of(&s, &f), 0);
	/*
	 * 3 of the context, 10 of the extended queue pair of rdma-core 44, and the word behind it:
	 * in newer libraries that is wr_flush, here it is the beginning of the next queue
	 */
	assert_int_equal(f.n, 3 + 10 + 1);
	assert_int_equal(known_function(&f, PF_RDMA_WR_FLUSH), AT(queues[2].base.context));
	assert_int_equal(known_function(&f, PF_RDMA_WR_SEND), AT(wr_send));
	assert_int_equal(known_function(&f, PF_RDMA_WR_START), AT(wr_start));
	assert_int_equal(known_function(&f, PF_RDMA_WR_COMPLETE), AT(wr_complete));
	assert_int_equal(known_function(&f, PF_RDMA_WR_ABORT), AT(wr_abort));
	assert_int_equal(known_function(&f, PF_RDMA_WR_SET_SGE), AT(wr_set_sge));
	assert_int_equal(known_function(&f, PF_RDMA_WR_SET_INLINE_DATA_LIST),
			 AT(wr_set_inline_data_list));
	assert_int_equal(known_function(&f, PF_RDMA_WR_ATOMIC_WRITE), AT(wr_atomic_write));
	functions_go(&s, 5, 2);
	assert_false(s.w.known); /* nothing is new */
	scene_close(&s);
}

/* A full drain reads the kernel's counters. */
static uint64_t lost_late(struct scene *s)
{
	watch_drain(s->p, &s->w, true);
	return lost("rdma_late");
}

/*
 * If a process uses a queue pair before the functions of its provider are probed, that is one loss.
 * The process's first call shows 3 functions, and the second 11 more.
 */
static void requests_before_the_probes_are_a_loss(void **state)
{
	static const struct {
		uint32_t n_probed;
		uint64_t first, second;
	} cases[] = {{0, 1, 2}, {3, 0, 1}, {14, 0, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene s = {.set = PROBES_RDMA};
		uint64_t before;

		add_library(&s.probed);
		s.probed.proc.n_functions = cases[i].n_probed;
		scene_open(&s, body_functions, RDMA, 0);
		before = lost_late(&s);
		functions_go(&s, 3, 2);
		assert_int_equal(lost_late(&s) - before, cases[i].first);
		functions_go(&s, 4, 2);
		assert_int_equal(lost_late(&s) - before, cases[i].second);
		scene_close(&s);
	}
}

IN_SECTION(pf_loop) static void body_object(struct truth *t)
{
	say_and_wait(t, 1);
	dereg_mr(domain); /* memory of a device that is older than the probes */
	say_and_wait(t, 3);
	dereg_mr(domain);
	say_and_wait(t, 4);
}

IN_SECTION(pf_loop) static void body_open(struct truth *t)
{
	say_and_wait(t, 1);
	open_device(&devices[0]);
	dereg_mr(domain);
	say_and_wait(t, 3);
	say_and_wait(t, 4);
}

/*
 * If the first call that shows the functions of a device is not the one that opens it, the process
 * may have posted before. That is one loss.
 */
static void requests_before_the_first_call_are_a_loss(void **state)
{
	static const struct {
		body_fn *body;
		uint64_t late;
	} cases[] = {{body_object, 1}, {body_open, 0}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene s = {.set = PROBES_RDMA};
		uint64_t before;

		add_library(&s.probed);
		scene_open(&s, cases[i].body, RDMA, 0);
		before = lost_late(&s);
		functions_go(&s, 3, 2);
		assert_true(s.w.known);
		assert_int_equal(lost_late(&s) - before, cases[i].late);
		functions_go(&s, 4, 2);
		assert_int_equal(lost_late(&s) - before, cases[i].late);
		scene_close(&s);
	}
}

static int functions_map(const struct scene *s)
{
	const struct rdma_bpf *o = scene_set(s)->object.bpf;

	return bpf_map__fd(o->maps.rdma_functions);
}

/* How many entries the map has, as the programs count. */
static int32_t *n_functions(const struct scene *s)
{
	return &scene_set(s)->shares.of[SHARED_FUNCTIONS]->held[0];
}

/*
 * The map has functions of the program that the process executed before. The functions of the new
 * program replace them in the same entry.
 */
static void the_functions_of_an_earlier_program_are_replaced(void **state)
{
	struct pf_rdma_functions f = {.n = 3, .items = {{8, PF_RDMA_POST_SEND}}};
	struct scene s = {.set = PROBES_RDMA};
	struct pf_process_key key;
	unsigned before;

	(void)state;
	add_library(&s.probed);
	scene_open(&s, body_functions, RDMA, 0);
	key = (struct pf_process_key){s.w.proc.start_boottime_ns, (uint32_t)s.c.pid, 0};
	f.exec_id = s.w.proc.exec_id + 7;
	assert_int_equal(bpf_map_update_elem(functions_map(&s), &key, &f, BPF_NOEXIST), 0);
	++*n_functions(&s);
	before = map_count(functions_map(&s), sizeof(key));
	assert_int_equal(functions_of(&s, &f), -ENOENT);
	functions_go(&s, 3, 2);
	assert_int_equal(functions_of(&s, &f), 0);
	assert_int_equal(f.n, 3);
	assert_int_equal(known_function(&f, PF_RDMA_POST_SEND), AT(post_send));
	assert_int_equal(map_count(functions_map(&s), sizeof(key)), before);
	f.items[1].address = 0; /* as if a BPF program were just writing it */
	assert_int_equal(bpf_map_update_elem(functions_map(&s), &key, &f, BPF_ANY), 0);
	assert_int_equal(functions_of(&s, &f), 0);
	assert_int_equal(f.n, 1);
	scene_close(&s);
}

/*
 * If the map is full, the functions of a process stay unknown. The next detach makes room: it
 * removes the functions of processes that have ended.
 */
static void a_full_table_makes_room(void **state)
{
	static const struct pf_rdma_functions none;
	struct scene s = {.set = PROBES_RDMA};
	struct pf_process_key ended = {};
	struct pf_rdma_functions f;

	(void)state;
	add_library(&s.probed);
	scene_open(&s, body_functions, RDMA, 0);
	ended.tgid = s.c.pid; /* the PID of a process that began at another time */
	for (; !bpf_map_update_elem(functions_map(&s), &ended, &none, BPF_ANY); ended.exec_id++)
		++*n_functions(&s);
	functions_go(&s, 3, 2);
	assert_false(s.w.known);
	assert_int_equal(functions_of(&s, &f), -ENOENT);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(map_count(functions_map(&s), sizeof(struct pf_process_key)), 0);
	assert_int_equal(scene_attach(&s, RDMA), 0);
	functions_go(&s, 4, 2);
	assert_int_equal(functions_of(&s, &f), 0);
	assert_int_equal(known_function(&f, PF_RDMA_POST_SEND), AT(post_send));
	scene_close(&s);
}

/* ---- two namespaces ---- */

/*
 * Fills three quarters of the table with processes of the greedy namespace. They live, so no detach
 * removes them.
 */
static void fill_table(const struct neighbours *n)
{
	struct pf_shares *table = neighbours_table(n, SHARED_FUNCTIONS);
	struct pf_process_key key = {n->greedy->w.proc.start_boottime_ns, n->greedy->c.pid, 0};
	struct pf_rdma_functions none = {.share = probes_share_of(n->greedy->p, NS_GREEDY)};

	while (table->held[0] < PF_MEM_PROCS_MAX / 4 * 3) {
		key.exec_id++;
		assert_int_equal(bpf_map_update_elem(functions_map(n->greedy), &key, &none, 0), 0);
		table->held[0]++;
		table->held[none.share]++;
	}
}

static void processes_of_one_namespace_leave_room(void **state)
{
	struct neighbours n = {
		.set = PROBES_RDMA, .events = RDMA, .n_greedy = 2, .add_probes = add_library};
	struct pf_rdma_functions f;

	(void)state;
	if (neighbours_have_run())
		return;
	neighbours_open(&n, body_functions, body_functions);
	fill_table(&n);
	neighbours_fill(&n, 3);
	assert_int_equal(functions_of(&n.greedy[1], &f), -ENOENT);
	assert_int_equal(n.greedy[1].w.last_refused.ns, NS_GREEDY);
	assert_int_equal(n.greedy[1].w.last_refused.table, SHARED_FUNCTIONS);
	go(&n.victim, 3);
	assert_int_equal(functions_of(&n.victim, &f), 0);
	assert_int_equal(f.n, 3);
	neighbours_close(&n);
}

/* ---- a probe in the middle of an instruction ---- */

/*
 * Each byte of the number, 0x50, is also the opcode of a push, so the kernel accepts a probe at it.
 */
__asm__(".pushsection pf_driver,\"ax\",@progbits\n"
	"number_of_code: movabs $0x5050505050505050, %rax\nret\n"
	".popsection\n");
extern uint64_t number_of_code(void);

#define NUMBER	     0x5050505050505050
#define WITH_A_PROBE 0x50505050505050cc

IN_SECTION(pf_loop) static void body_number(struct truth *t)
{
	for (uint32_t step = 1;; step = 5 - step) { /* 1, 4, 1, ... */
		t->short_ns = number_of_code();
		say_and_wait(t, step);
	}
}

static uint64_t number_now(struct child *c)
{
	uint32_t next = 5 - c->truth->ready;

	c->truth->ready = 2;
	await(c, next);
	return c->truth->short_ns;
}

/*
 * The finder refuses such an address. If a process could make the agent set a probe there, it would
 * change its own code, but not that of another process that maps the same file.
 */
static void a_probe_in_the_middle_changes_one_process(void **state)
{
	struct child other;
	struct scene s = {.set = PROBES_RDMA};

	(void)state;
	need_mode();
	other = child_start(body_number, NULL);
	await(&other, 1);
	add_site(&s.probed, (const char *)number_of_code + 2,
		 (struct pf_site){.kind = PF_SITE_RDMA_START});
	scene_open(&s, body_number, RDMA, 0);
	assert_int_equal(number_now(&s.c), WITH_A_PROBE);
	assert_int_equal(number_now(&other), NUMBER);
	s.a = probes_detach(s.p, s.a);
	assert_int_equal(number_now(&s.c), NUMBER);
	assert_int_equal(number_now(&other), NUMBER);
	scene_close(&s);
	child_stop(&other);
}

static int run(const char *name, enum uprobe_mode mode)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_learned_and_reported),
		cmocka_unit_test(requests_before_the_probes_are_a_loss),
		cmocka_unit_test(requests_before_the_first_call_are_a_loss),
		cmocka_unit_test(the_functions_of_an_earlier_program_are_replaced),
		cmocka_unit_test(a_full_table_makes_room),
		cmocka_unit_test(processes_of_one_namespace_leave_room),
		cmocka_unit_test(a_probe_in_the_middle_changes_one_process),
	};

	mode_at_most = mode;
	share_probes = true;
	return cmocka_run_group_tests_name(name, tests, NULL, close_shared);
}

int main(int argc, char **argv)
{
	return in_each_mode(argc, argv, run);
}
