// SPDX-License-Identifier: Apache-2.0
/*
 * Waits with unusual ends: no program saw the end, another thread got the thread's number, the
 * machine was suspended, the table is full.
 */
#include "node/probe/offcpu_scene_test.h"

#include <pthread.h>
#include <sched.h>

#include "offcpu_walk.skel.h"

/* ---- the end of a wait that no program saw ---- */

static void body_two_waits(struct truth *t)
{
	const struct sched_param first = {.sched_priority = 1};
	struct known *k = known_of(t);

	begin(k);
	/* So that other tasks hardly ever take its CPU between the two waits. */
	sched_setscheduler(0, SCHED_FIFO, &first);
	usleep(1000);
	k->base.ready = 1;
	while (!k->wake)
		spin(1);
	TIMED(k, WAIT_SLEEP, usleep(50000));
	end(k);
}

/* Indexes of 8-byte words in struct pf_waiting. */
enum { WAITING_SINCE = 1, WAITING_COUNTED = 3, WAITING_KEY = 8 };

/*
 * Returns the thread's number in the table of waits: that of the initial PID namespace, which may
 * not be the test's. Fails if no wait of the thread is noted in two minutes.
 */
static uint32_t number_in_table(struct probes *p, uint32_t tid)
{
	int map = bpf_object__find_map_fd_by_name(p->events[EVENT_OFF_CPU].obj, "waits");
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC, wait[64];
	const struct pf_count_key *key = (const void *)&wait[WAITING_KEY];
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info), number;

	assert_int_equal(bpf_obj_get_info_by_fd(map, &info, &n), 0);
	assert_in_range(info.value_size, WAITING_KEY * 8 + sizeof(*key), sizeof(wait));
	while (now_mono_ns() < deadline) {
		for (const uint32_t *last = NULL; !bpf_map_get_next_key(map, last, &number);
		     last = &number)
			if (!bpf_map_lookup_elem(map, &number, wait) && key->tid == tid)
				return number;
		nap(1);
	}
	fail_msg("no wait of thread %u is noted", tid);
	return 0;
}

/*
 * Changes the tables as if no program had run at the end of the first wait: the wait goes on in
 * them, although its thread runs. Returns how many waits n_going_on() reports until the thread is
 * switched out. 0: the thread does not run, so it really waits.
 */
static uint32_t unsee_the_end(struct probes *p, uint32_t number)
{
	struct bpf_object *o = p->events[EVENT_OFF_CPU].obj;
	int waits = bpf_object__find_map_fd_by_name(o, "waits");
	int threads = bpf_object__find_map_fd_by_name(o, "threads");
	_cleanup_free_ uint64_t *wait = NULL;
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info), one = 1;

	assert_int_equal(bpf_obj_get_info_by_fd(waits, &info, &n), 0);
	wait = xcalloc(1, info.value_size);
	assert_int_equal(bpf_map_lookup_elem(waits, &number, wait), 0);
	if (wait[WAITING_COUNTED] != UINT64_MAX)
		return 0; /* the thread does not run at this moment */
	wait[WAITING_COUNTED] = wait[WAITING_SINCE];
	assert_int_equal(bpf_map_update_elem(waits, &number, wait, BPF_EXIST), 0);
	assert_int_equal(bpf_obj_get_info_by_fd(threads, &info, &n), 0);
	for (uint32_t slot = 0; slot < info.max_entries; slot++)
		assert_int_equal(bpf_map_update_elem(threads, &slot, &one, BPF_ANY), 0);
	return info.max_entries;
}

/*
 * Returns how many waits go on according to the table `threads`. The programs use that table to
 * find out quickly that a thread has no wait.
 */
static uint32_t n_going_on(struct probes *p)
{
	int threads = bpf_object__find_map_fd_by_name(p->events[EVENT_OFF_CPU].obj, "threads");
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info), sum = 0, here;

	assert_int_equal(bpf_obj_get_info_by_fd(threads, &info, &n), 0);
	for (uint32_t slot = 0; slot < info.max_entries; slot++) {
		assert_int_equal(bpf_map_lookup_elem(threads, &slot, &here), 0);
		sum += here;
	}
	return sum;
}

static long preempted(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/status", pid), *text = NULL;
	const char *at;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 16, &text, NULL), 0);
	at = strstr(text, "nonvoluntary_ctxt_switches:");
	assert_non_null(at);
	return strtol(strchr(at, ':') + 1, NULL, 10);
}

/*
 * The process has one wait of the right length. The thread may also be preempted, or wait for a
 * page or a lock for a moment.
 */
static void assert_one_wait(const struct waits *w, const struct known *k)
{
	assert_in_range(w->sum - w->us[WAIT_RUNQUEUE], 45000, k->us[WAIT_SLEEP] + 1000);
}

/*
 * Returns false if the scene was not as planned: the thread lost its CPU meanwhile, a program saw
 * that and ended the wait, or the kernel did not run the program that reports it.
 */
static bool try_unseen_end(void)
{
	struct child c = child_start(body_two_waits, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	uint64_t before, deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct waits w = {.pid = c.pid};
	long n_preempted;
	uint32_t n;
	bool valid;

	k->go = 1;
	while (!k->base.ready) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
	drain(p, &w, 1);
	before = lost("end_unseen");
	n_preempted = preempted(c.pid);
	n = unsee_the_end(p, number_in_table(p, (uint32_t)c.pid));
	k->wake = 1;
	while (!k->done) { /* no drain, because a drain would count waits that go on */
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
	valid = n && preempted(c.pid) == n_preempted;
	w = (struct waits){.pid = c.pid};
	drain(p, &w, 1);
	/* The kernel may also not run the program when the thread begins the second wait. */
	valid = valid && lost("end_unseen") == before + 1;
	if (valid) {
		assert_int_equal(n_going_on(p), n - 1);
		assert_one_wait(&w, k);
	}
	probes_free(p);
	child_stop(&c);
	return valid;
}

static void an_end_that_nobody_saw_is_told(void **state)
{
	unsigned n_tries = 0;

	(void)state;
	while (!try_unseen_end())
		assert_true(++n_tries < 10);
}

/* ---- threads that get the number of an earlier thread ---- */

static void body_short_wait(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	TIMED(k, WAIT_SLEEP, usleep(50000));
	end(k);
}

static bool start_with_pid(pid_t pid, struct child *ret)
{
	_cleanup_free_ char *text = xasprintf("%d", pid - 1);
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);

	if (fd < 0)
		return false;
	(void)!write(fd, text, strlen(text));
	close(fd);
	*ret = child_start(body_short_wait, NULL);
	return true;
}

static void a_reused_number_is_another_thread(void **state)
{
	struct child old = child_start(body_until_woken, NULL), c = {};
	struct known *k = known_of(old.truth);
	struct probes *p = watch(&old, (struct event_settings){}, 0);
	struct listed_process l;
	struct waits w = {.pid = old.pid};
	pid_t pid = old.pid;

	(void)state;
	k->go = 1;
	while (!k->base.ready)
		nap(1);
	until_asleep(old.pid);
	child_stop(&old);
	drain(p, &w, 1);
	for (int i = 0; i < 200 && c.pid != pid; i++) {
		if (c.pid)
			child_stop(&c);
		if (!start_with_pid(pid, &c)) {
			print_message("skipped: no /proc/sys/kernel/ns_last_pid\n");
			probes_free(p);
			skip();
		}
	}
	assert_int_equal(c.pid, pid);
	l = listed(&c);
	assert_int_equal(probes_list(p, &l, 1), 0);
	w = (struct waits){.pid = pid};
	until_done(p, known_of(c.truth), &w, 1);
	assert_one_wait(&w, known_of(c.truth));
	probes_free(p);
	child_stop(&c);
}

static void *naps_then_execs(void *arg)
{
	struct known *k = arg;

	k->n[0] = (uint64_t)gettid();
	while (!k->go)
		usleep(1000);
	execl("/bin/sleep", "sleep", "600", NULL);
	_exit(1);
}

static void body_execs_beside(struct truth *t)
{
	pthread_t thread;

	pthread_create(&thread, NULL, naps_then_execs, known_of(t));
	pthread_join(thread, NULL);
}

/* A thread that calls exec gets its process's number. The entry of its old number is removed. */
static void who_execs_beside_the_first_thread_leaves_nothing(void **state)
{
	struct child c = child_start(body_execs_beside, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	int map = bpf_object__find_map_fd_by_name(p->events[EVENT_OFF_CPU].obj, "waits");
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	_cleanup_free_ void *w = xcalloc(1, 4096); /* room for a struct pf_waiting */
	uint32_t number;

	(void)state;
	while (!k->n[0]) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
	assert_int_not_equal(k->n[0], c.pid);
	number = number_in_table(p, (uint32_t)k->n[0]);
	k->go = 1;
	while (!bpf_map_lookup_elem(map, &number, w)) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
	probes_free(p);
	child_stop(&c);
}

/* ---- a machine that is suspended ---- */

static unsigned n_calls(const struct bpf_program *prog, enum bpf_func_id helper)
{
	const struct bpf_insn *insns = bpf_program__insns(prog);
	unsigned n = 0;

	for (size_t i = 0; i < bpf_program__insn_cnt(prog); i++)
		n += insns[i].code == (BPF_JMP | BPF_CALL) && !insns[i].src_reg &&
		     insns[i].imm == (int)helper;
	return n;
}

static struct offcpu_walk_bpf *load_walk(struct probes *p)
{
	struct offcpu_walk_bpf *b = offcpu_walk_bpf__open();

	assert_non_null(b);
	assert_int_equal(probes_lend_maps(p, b->obj), 0);
	assert_int_equal(offcpu_walk_bpf__load(b), 0);
	return b;
}

/*
 * A machine that runs tests cannot be suspended. But only pf_wait_clock() calls the clock that
 * stands still while a machine is suspended. So this test finds each place that measures waits.
 * Loaded programs contain the functions that they call.
 */
static void time_asleep_is_nobodys_wait(void **state)
{
	static const struct {
		const char *program;
		unsigned n;
	} places[] = {
		/* called once for the wait that ends, and once for the wait that begins */
		{"pf_switch", 2},      {"pf_wakeup", 1},      {"pf_waits_now", 1},
		{"pf_thread_exit", 0}, {"pf_thread_exec", 0},
	};
	struct child c = child_start(body_work, NULL);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	const struct bpf_object *o = p->events[EVENT_OFF_CPU].obj;
	struct bpf_program *prog;
	size_t n = 0;

	(void)state;
	bpf_object__for_each_program(prog, o) n++;
	assert_int_equal(n, ARRAY_SIZE(places));
	for (size_t i = 0; i < n; i++) {
		prog = bpf_object__find_program_by_name(o, places[i].program);
		assert_non_null(prog);
		if (n_calls(prog, BPF_FUNC_ktime_get_ns) != places[i].n)
			fail_msg("%s reads the waits' clock %u times", places[i].program,
				 n_calls(prog, BPF_FUNC_ktime_get_ns));
	}
	if (p->support[FEATURE_WHOLE_WAITS].ok) {
		struct offcpu_walk_bpf *walk = load_walk(p);

		assert_int_equal(n_calls(walk->progs.pf_waits_look, BPF_FUNC_ktime_get_ns), 1);
		offcpu_walk_bpf__destroy(walk);
	}
	probes_free(p);
	child_stop(&c);
}

/* ---- loss ---- */

static void body_short_naps(struct truth *t)
{
	t->ready = 1;
	for (;;)
		nap(1);
}

/*
 * If more threads wait than the table can hold, the waits of the next thread are counted as lost.
 */
static void threads_beyond_the_table_are_counted(void **state)
{
	struct child c = child_start(body_short_naps, NULL);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	int map = bpf_object__find_map_fd_by_name(p->events[EVENT_OFF_CPU].obj, "waits");
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC, before = lost("waits_full");
	struct waits w = {.pid = c.pid};
	struct bpf_map_info info = {};
	uint32_t n = sizeof(info), number;
	_cleanup_free_ char *value = NULL;

	(void)state;
	assert_int_equal(bpf_obj_get_info_by_fd(map, &info, &n), 0);
	value = xcalloc(1, info.value_size);
	number = number_in_table(p, (uint32_t)c.pid);
	while (lost("waits_full") == before && now_mono_ns() < deadline) {
		/*
		 * fills the table with numbers that no thread has, also in the place of the child's
		 * thread
		 */
		for (uint32_t i = 0; i < info.max_entries; i++)
			(void)bpf_map_update_elem(map, &(uint32_t){(1u << 30) + i}, value, BPF_ANY);
		bpf_map_delete_elem(map, &number);
		(void)bpf_map_update_elem(map, &(uint32_t){1u << 29}, value, BPF_ANY);
		nap(20);
		drain(p, &w, 1);
	}
	assert_true(lost("waits_full") > before);
	probes_free(p);
	child_stop(&c);
}

/* ---- the table is shared ---- */

#define WAITS_FEW 64 /* entries of the table */
enum { NS_GREEDY = 1001, NS_VICTIM = 1003 };

static void *naps(void *arg)
{
	for (;;)
		nap(20);
	return arg;
}

static void naps_in_threads(struct truth *t, int n)
{
	pthread_t thread;

	for (int i = 0; i < n; i++)
		pthread_create(&thread, NULL, naps, NULL);
	t->ready = 1;
	naps(NULL);
}

static void body_many_threads(struct truth *t)
{
	naps_in_threads(t, 4 * WAITS_FEW);
}

#define VICTIMS 7 /* threads, apart from the first one */
static void body_few_threads(struct truth *t)
{
	naps_in_threads(t, VICTIMS);
}

/* Waits, from one drain to the next, of each of the two, and what is lost. */
struct both {
	struct waits greedy, victim;
	uint64_t refused_greedy, refused_victim;
};

static void drain_both(struct probes *p, struct both *b)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	take(&b->greedy, d);
	take(&b->victim, d);
	for (size_t i = 0; i < d->n_refused; i++) {
		assert_int_equal(d->refused[i].event, EVENT_OFF_CPU);
		assert_int_equal(d->refused[i].table, SHARED_WAITS);
		++*(d->refused[i].ns == NS_GREEDY ? &b->refused_greedy : &b->refused_victim);
	}
	sample_drain_free(d);
}

static void await_ready(const struct child *c)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (!c->truth->ready) {
		if (now_mono_ns() > deadline)
			fail_msg("the threads do not start");
		nap(1);
	}
}

/*
 * A namespace has more threads than the table has entries. Of another one, each thread is seen.
 */
static void threads_of_one_namespace_leave_room(void **state)
{
	struct probe_config config = LISTED;
	struct child greedy = child_start(body_many_threads, NULL), victim;
	struct both b = {.greedy.pid = greedy.pid}, end;
	struct listed_process l[2];
	struct probes *p;
	uint64_t t0;

	(void)state;
	config.wait_entries = WAITS_FEW;
	p = watch_by(config, &greedy, (struct event_settings){}, 0);
	l[0] = listed(&greedy);
	l[0].ns = NS_GREEDY;
	assert_int_equal(probes_list(p, l, 1), 0);
	await_ready(&greedy);
	for (int i = 0; i < 5; i++) {
		nap(50);
		drain_both(p, &b);
	}
	assert_true(b.refused_greedy > 0);
	victim = child_start(body_few_threads, NULL);
	b.victim.pid = victim.pid;
	l[1] = listed(&victim);
	l[1].ns = NS_VICTIM;
	assert_int_equal(probes_list(p, l, 2), 0);
	await_ready(&victim);
	nap(100); /* each thread begins a wait in this time */
	drain_both(p, &b);
	t0 = now_mono_ns();
	end = b;
	nap(2000);
	drain_both(p, &end);
	/* Each thread waits nearly all the time. One thread less would be an eighth. */
	assert_true(end.victim.sum - b.victim.sum >
		    (now_mono_ns() - t0) / 1000 * (VICTIMS + 1) * 94 / 100);
	assert_int_equal(end.refused_victim, 0);
	assert_true(end.refused_greedy > b.refused_greedy);
	assert_true(end.greedy.sum > b.greedy.sum); /* the others of its threads are seen */
	child_stop(&greedy);
	child_stop(&victim);
	/* Threads that have ended leave their room. */
	assert_int_equal(p->events[EVENT_OFF_CPU]
				 .ops->shares(&p->events[EVENT_OFF_CPU])
				 ->of[SHARED_WAITS]
				 ->held[0],
			 0);
	probes_free(p);
}

/* The argument is a pattern of test names such as "an_end*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_end_that_nobody_saw_is_told),
		cmocka_unit_test(a_reused_number_is_another_thread),
		cmocka_unit_test(who_execs_beside_the_first_thread_leaves_nothing),
		cmocka_unit_test(time_asleep_is_nobodys_wait),
		cmocka_unit_test(nothing_was_dropped),
		cmocka_unit_test(threads_beyond_the_table_are_counted),
		cmocka_unit_test(threads_of_one_namespace_leave_room),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
