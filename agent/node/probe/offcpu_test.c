// SPDX-License-Identifier: Apache-2.0
/*
 * Waits of real threads, with known causes and lengths. The four rules are: a preempted thread does
 * not wait; process 0 and kernel threads never wait; the stack of a wait has a user function; no
 * wait counts for more than an hour. Also tests the limits that a target asks for, and waits that
 * last over several drains.
 */
#include "node/probe/offcpu_scene_test.h"

#include <linux/io_uring.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include "core.skel.h"

#define HOUR_US (3600ull * USEC_PER_SEC)

/* ---- causes ---- */

#define NAP_US 20000

/*
 * Answers each request a while later, on the descriptor that the request names. It ends with its
 * parent.
 */
static void feeder(int asked)
{
	char fd;

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(asked, &fd, 1) == 1) {
		nap(NAP_US / 1000);
		(void)!write(fd, "", 1);
	}
	_exit(0);
}

/* The parent waits uninterruptibly until its child ends. It does not wait for a disk. */
static __attribute__((noinline)) int wait_for_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		usleep(NAP_US);
		_exit(0);
	}
	return pid;
}

static void body_causes(struct truth *t)
{
	struct known *k = known_of(t);
	struct timespec nap_time = {0, NAP_US * 1000};
	int pipes[2], sockets[2], asks[2], word = 0;
	struct pollfd none = {.fd = -1};
	sigset_t no_signals;
	char byte, to_pipe, to_socket;
	uint64_t delay_ns;

	sigemptyset(&no_signals);
	if (pipe(pipes) || pipe(asks) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		_exit(1);
	to_pipe = pipes[1];
	to_socket = sockets[1];
	begin(k);
	delay_ns = run_delay_ns();
	feeder(asks[0]);
	for (int i = 0; i < 10; i++) {
		TIMED(k, WAIT_SLEEP, nanosleep(&nap_time, NULL));
		TIMED(k, WAIT_LOCK,
		      syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &nap_time, NULL, 0));
		TIMED(k, WAIT_POLL, poll(&none, 1, NAP_US / 1000));
		(void)!write(asks[1], &to_pipe, 1);
		TIMED(k, WAIT_PIPE, read(pipes[0], &byte, 1));
		(void)!write(asks[1], &to_socket, 1);
		TIMED(k, WAIT_SOCKET, read(sockets[0], &byte, 1));
		(void)!write(asks[1], &to_socket, 1);
		TIMED(k, WAIT_SOCKET, recv(sockets[0], &byte, 1, 0));
		TIMED(k, WAIT_OTHER, sigtimedwait(&no_signals, NULL, &nap_time));
		TIMED(k, WAIT_OTHER, wait_for_vfork());
	}
	k->run_delay_ns = run_delay_ns() - delay_ns;
	end(k);
}

static void waits_have_their_causes_and_lengths(void **state)
{
	struct child c = child_start(body_causes, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct waits w = {.pid = c.pid};
	uint64_t sum = 0, unseen = lost("end_unseen");

	(void)state;
	until_done(p, k, &w, 1);
	for (enum wait cause = WAIT_LOCK; cause <= WAIT_OTHER; cause++) {
		check_cause(&w, k, cause);
		sum += k->us[cause];
	}
	/*
	 * On machines of this project's CI, no tracing program and none of ftrace's events runs in
	 * the context of the supervisor's threads (process 1). So the programs do not see wake-ups
	 * and switches there, and that is counted.
	 */
	unseen = MIN(lost("end_unseen") - unseen, 1);
	assert_in_range(w.us[WAIT_SLEEP], (10 - unseen) * NAP_US * 95 / 100, k->us[WAIT_SLEEP]);
	assert_true(w.sum + k->run_delay_ns / 1000 >= sum / 2);
	assert_true(w.sum <= sum + sum / 100);
	assert_int_equal(w.lost + w.userless + w.others, 0);
	probes_free(p);
	child_stop(&c);
}

/* ---- the disk ---- */

static void body_disk(struct truth *t)
{
	static _Alignas(4096) char block[1 << 16];
	struct known *k = known_of(t);
	char path[] = "offcpu_test.XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	begin(k);
	for (int i = 0; i < 50; i++) {
		block[0] = i;
		TIMED(k, WAIT_DISK, pwrite(fd, block, sizeof(block), 0));
		TIMED(k, WAIT_DISK, fsync(fd));
	}
	end(k);
}

static void the_disk_is_waited_for(void **state)
{
	struct child c = child_start(body_disk, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct waits w = {.pid = c.pid};
	uint64_t took;

	(void)state;
	until_done(p, k, &w, 1);
	took = k->us[WAIT_DISK];
	probes_free(p);
	child_stop(&c);
	if (took < 10000 || !w.sum) {
		print_message("skipped: nothing here waits for a disk (%lu us in 50 fsyncs)\n",
			      took);
		skip();
	}
	assert_true(w.us[WAIT_DISK] > 0);
	assert_true(w.us[WAIT_DISK] <= took);
}

/* ---- the run queue ---- */

static void pin(pid_t pid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	assert_int_equal(sched_setaffinity(pid, sizeof(set), &set), 0);
}

/* Runs for 5 ms, sleeps for 5 ms. With a real-time priority, it keeps its CPU from other tasks. */
static void body_bully(struct truth *t)
{
	(void)t;
	for (;;) {
		uint64_t until = now_mono_ns() + 5 * NSEC_PER_MSEC;

		while (now_mono_ns() < until)
			spin(1);
		nap(5);
	}
}

static void body_naps(struct truth *t)
{
	struct known *k = known_of(t);
	uint64_t before;

	begin(k);
	before = run_delay_ns();
	for (int i = 0; i < 100; i++)
		TIMED(k, WAIT_SLEEP, usleep(1000));
	k->run_delay_ns = run_delay_ns() - before;
	end(k);
}

static void the_run_queue_is_told_apart(void **state)
{
	struct child bully = child_start(body_bully, NULL), c = child_start(body_naps, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct waits w = {.pid = c.pid};
	struct sched_param fifo = {.sched_priority = 1};

	(void)state;
	pin(bully.pid);
	pin(c.pid);
	if (sched_setscheduler(bully.pid, SCHED_FIFO, &fifo))
		print_message("no real-time priority here: the bully is a usual process\n");
	until_done(p, k, &w, 1);
	assert_true(k->run_delay_ns > 10 * NSEC_PER_MSEC);
	/*
	 * The time in the run queue after a preemption is not a wait. It is short, because the
	 * thread hardly runs.
	 */
	assert_true(w.us[WAIT_RUNQUEUE] * 1000 <= k->run_delay_ns + k->run_delay_ns / 20);
	assert_true(w.us[WAIT_RUNQUEUE] * 1000 >= k->run_delay_ns / 2);
	assert_true(w.us[WAIT_SLEEP] >= 100 * 950);
	assert_true(w.sum <= k->us[WAIT_SLEEP] + k->run_delay_ns / 1000);
	probes_free(p);
	child_stop(&c);
	child_stop(&bully);
}

static uint64_t preemptions(pid_t pid)
{
	_cleanup_free_ char *n = proc_field(pid, "status", "nonvoluntary_ctxt_switches:");

	return strtoull(n, NULL, 10);
}

/* Rule one: a preempted thread does not wait. */
static void a_preempted_thread_does_not_wait(void **state)
{
	struct child bully = child_start(body_bully, NULL), c = child_start(body_work, NULL);
	struct probes *p;
	struct waits w = {.pid = c.pid};
	struct sched_param fifo = {.sched_priority = 1};
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, before;

	(void)state;
	pin(bully.pid);
	pin(c.pid);
	sched_setscheduler(bully.pid, SCHED_FIFO, &fifo);
	while (!c.truth->ready)
		nap(10);
	p = watch(&c, (struct event_settings){}, 0);
	before = preemptions(c.pid);
	while (preemptions(c.pid) < before + 20) {
		assert_true(now_mono_ns() < deadline);
		nap(20);
		drain(p, &w, 1);
	}
	drain(p, &w, 1);
	assert_int_equal(w.sum, 0);
	probes_free(p);
	child_stop(&c);
	child_stop(&bully);
}

/* ---- rule two: never process 0, never a kernel thread ---- */

/* Returns whether PF_KTHREAD is set in the flags, field 9 of /proc/PID/stat. */
static bool is_kernel_thread(uint32_t tid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/stat", tid), *text = NULL;
	char *s;

	if (file_read(-1, path, 4096, &text, NULL))
		return false; /* the thread has ended */
	s = strrchr(text, ')') + 1;
	for (int i = 0; i < 7; i++)
		s = strchr(s, ' ') + 1;
	return strtoul(s, NULL, 10) & 0x00200000;
}

static void idle_and_kernel_threads_never_wait(void **state)
{
	struct probe_config config = {.use_cgroups = true};
	struct container_filter root = {.event_mask = 1u << EVENT_OFF_CPU};
	struct field_error err = {};
	struct bpf_map *map;
	uint32_t tid, *at = NULL;
	unsigned n = 0;
	struct probes *p;
	struct drain *d;
	struct stat st;

	(void)state;
	assert_int_equal(proc_cgroup_choose("", &config.hierarchy, &err), 0);
	assert_int_equal(stat(config.hierarchy.mount, &st), 0);
	root.cgroup_id = st.st_ino;
	p = open_probes(config);
	assert_int_equal(probes_filter(p, &root, 1), 0);
	/* Kernel threads wake up all the time: to write back, to keep RCU going. */
	nap(1000);
	assert_int_equal(probes_drain(p, true, &d), 0);
	for (size_t i = 0; i < d->n_samples; i++)
		assert_true(d->samples[i].tgid != 0);
	map = bpf_object__find_map_by_name(p->events[EVENT_OFF_CPU].obj, "waits");
	for (; !bpf_map_get_next_key(bpf_map__fd(map), at, &tid); at = &tid, n++) {
		assert_true(tid != 0);
		assert_false(is_kernel_thread(tid));
	}
	print_message("%u threads of the root cgroup, %zu samples\n", n, d->n_samples);
	sample_drain_free(d);
	probes_free(p);
}

/* ---- rule three: the stack has at least one user function ---- */

/*
 * Makes a thread that never was in user space: the kernel's thread that polls a submission queue.
 */
static void body_uring(struct truth *t)
{
	struct io_uring_params params = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};
	struct known *k = known_of(t);
	int fd;

	begin(k);
	fd = syscall(SYS_io_uring_setup, 4, &params);
	k->base.ready = fd >= 0 ? 1 : 2;
	for (int i = 0; i < 20; i++) {
		usleep(5000);
		syscall(SYS_io_uring_enter, fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
	}
	k->us[0] = gettid();
	end(k);
}

static void who_was_never_in_user_space_is_left_out(void **state)
{
	struct child c = child_start(body_uring, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct waits w = {.pid = c.pid};
	bool tried;

	(void)state;
	until_done(p, k, &w, 1);
	tried = k->base.ready == 1;
	assert_true(w.sum > 0);
	assert_int_equal(w.userless, 0);
	assert_int_equal(w.last_tid, c.pid);
	probes_free(p);
	child_stop(&c);
	if (!tried) {
		print_message("skipped: no io_uring here\n");
		skip();
	}
}

/* ---- rule four: at most an hour; and the limits that a target asks for ---- */

static struct pf_filter filter_of(struct probes *p, uint32_t tgid)
{
	struct pf_listed l;

	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(p->core->maps.filter_tgids), &tgid, &l),
			 0);
	return l.filter;
}

static void nothing_counts_for_more_than_an_hour(void **state)
{
	static const uint64_t asked[] = {0, 2 * HOUR_US, UINT64_MAX, HOUR_US, 5000};
	struct child c = child_start(body_naps, NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		struct probes *p = watch(&c, (struct event_settings){.max_block_us = asked[i]}, 0);

		assert_int_equal(filter_of(p, c.pid).off_max_us, i == 4 ? 5000 : HOUR_US);
		probes_free(p);
	}
	child_stop(&c);
}

#define LONG_US	   150000
#define COUNTED_US 200000

/*
 * n[WAIT_SLEEP]: number of the sleeps that were long. On a very busy machine, a short sleep may
 * become long, too.
 */
static void body_two_lengths(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	for (int i = 0; i < 20; i++) {
		uint64_t before = now_us();

		usleep(i % 2 ? 300000 : 1000);
		k->n[WAIT_SLEEP] += now_us() - before >= LONG_US;
	}
	end(k);
}

/*
 * The test drains each 50 ms, so a long wait lasts for several drains. Still, only the first 200 ms
 * of each wait count.
 */
static void limits_hold_across_drains(void **state)
{
	struct child c = child_start(body_two_lengths, NULL);
	struct event_settings s = {.min_block_us = LONG_US, .max_block_us = COUNTED_US};
	struct probes *p = watch(&c, s, 0);
	struct waits w = {.pid = c.pid};

	(void)state;
	until_done(p, known_of(c.truth), &w, 1);
	assert_int_equal(w.sum, known_of(c.truth)->n[WAIT_SLEEP] * COUNTED_US);
	assert_int_equal(w.lost, 0);
	probes_free(p);
	child_stop(&c);
}

static void a_long_wait_appears_as_it_passes(void **state)
{
	struct child c = child_start(body_until_woken, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct waits w = {.pid = c.pid};
	uint64_t started = now_us(), since, first;

	(void)state;
	k->go = 1;
	until_counted(p, &w);
	first = w.sum;
	since = now_us();
	for (unsigned i = 1; i <= 4; i++) {
		uint64_t asked;

		nap(200);
		asked = now_us();
		drain(p, &w, 1);
		/*
		 * All the time up to this drain is counted. Each part is rounded down to
		 * microseconds.
		 */
		assert_true(w.sum - first + i >= asked - since);
		assert_true(w.sum <= now_us() - started);
	}
	wake(k);
	until_done(p, k, &w, 1);
	assert_true(w.sum + k->run_delay_ns / 1000 + 2000 >= k->us[WAIT_LOCK] * 99 / 100);
	assert_true(w.us[WAIT_LOCK] <= k->us[WAIT_LOCK]);
	assert_int_equal(w.lost + w.userless, 0);
	probes_free(p);
	child_stop(&c);
}

static void body_very_long_wait(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	TIMED(k, WAIT_SLEEP, usleep(18000000));
	end(k);
}

/* The kernel sends the stacks of a wait long before the wait is counted. */
static void a_wait_that_counts_late_has_its_stacks(void **state)
{
	struct child c;
	struct known *k;
	struct probes *p;
	struct waits w = {};

	(void)state;
	if (!getenv("LONG")) {
		print_message("skipped: takes 20 s; LONG=1 runs it\n");
		skip();
	}
	c = child_start(body_very_long_wait, NULL);
	k = known_of(c.truth);
	p = watch(&c, (struct event_settings){.min_block_us = 17000000}, 0);
	w.pid = c.pid;
	until_done(p, k, &w, 1);
	assert_in_range(w.sum, 17900000, k->us[WAIT_SLEEP]);
	assert_int_equal(w.lost + w.userless, 0);
	probes_free(p);
	child_stop(&c);
}

static int never[2]; /* a pipe to which no process writes */

/*
 * Calls read() at one place: first of a file that costs CPU time, then of a pipe that stays empty.
 * So samples of on-cpu in the kernel have the same user stack as the wait has later.
 */
static void body_reads(struct truth *t)
{
	static char buffer[1 << 18];
	struct known *k = known_of(t);
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	while (read(k->go ? never[0] : zero, buffer, sizeof(buffer)) > 0)
		;
}

static bool same_frames(const struct raw_stack *a, const struct raw_stack *b)
{
	bool same = a && b && a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++)
		same = a->frames[i].address == b->frames[i].address;
	return same;
}

static struct drain *drain_of(struct probes *p)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	return d;
}

static const struct raw_sample *first_wait(const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++)
		if (d->samples[i].event == EVENT_OFF_CPU)
			return &d->samples[i];
	return NULL;
}

static size_t ticks_there(const struct drain *d, const struct raw_stack *where)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n_samples; i++)
		if (d->samples[i].event == EVENT_ON_CPU)
			n += same_frames(sample_drain_stack(d, d->samples[i].ustack), where);
	return n;
}

/*
 * A wait's stack is kept until the wait is counted, even if on-CPU samples had the same stack in
 * the second in which the wait began.
 */
static void ticks_take_no_stack_from_a_wait(void **state)
{
	struct child c;
	struct probes *p =
		open_probes((struct probe_config){.use_list = true, .max_sample_hz = 999});
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, used;
	const struct raw_sample *s = NULL;
	struct listed_process l;
	struct drain *began, *d;

	(void)state;
	assert_int_equal(pipe(never), 0);
	c = child_start(body_reads, NULL);
	l = listed(&c);
	l.event_mask |= 1u << EVENT_ON_CPU;
	l.sample_hz = 999;
	l.settings = (struct event_settings){.min_block_us = 2000000};
	assert_int_equal(probes_list(p, &l, 1), 0);
	sample_drain_free(drain_of(p));
	used = program_cpu_ns(c.pid);
	while (program_cpu_ns(c.pid) - used < NSEC_PER_SEC / 5 && now_mono_ns() < deadline)
		nap(10);
	known_of(c.truth)->go = 1;
	until_asleep(c.pid);
	began = drain_of(p);
	assert_null(first_wait(began));
	for (d = drain_of(p); !(s = first_wait(d)) && now_mono_ns() < deadline; d = drain_of(p)) {
		sample_drain_free(d);
		nap(100);
	}
	assert_non_null(s);
	assert_non_null(sample_drain_stack(d, s->ustack));
	assert_true(ticks_there(began, sample_drain_stack(d, s->ustack)) > 0);
	sample_drain_free(began);
	sample_drain_free(d);
	probes_free(p);
	child_stop(&c);
	close(never[0]);
	close(never[1]);
}

/*
 * When the last target is removed, a wait that has not ended is counted up to that moment. If a
 * target comes later, only waits that begin after it comes are counted.
 */
static void waits_are_counted_while_somebody_asks(void **state)
{
	struct child c = child_start(body_until_woken, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct listed_process l = listed(&c);
	struct waits w = {.pid = c.pid}, later = {.pid = c.pid};
	uint64_t began = now_us(), seen, until, sum;

	(void)state;
	k->go = 1;
	until_counted(p, &w);
	seen = now_us();
	sum = w.sum;
	nap(20);
	until = now_us();
	assert_int_equal(probes_list(p, NULL, 0), 0);
	drain(p, &w, 1);
	assert_in_range(w.sum - sum + 2, until - seen,
			now_us() - began); /* two parts are rounded down to microseconds */
	assert_true(w.sum <= now_us() - began);
	assert_int_equal(w.us[WAIT_LOCK], w.sum);
	/*
	 * The wait began before the second target, so no program saw its begin, and it is not
	 * counted.
	 */
	assert_int_equal(probes_list(p, &l, 1), 0);
	wake(k);
	until_done(p, k, &later, 1);
	assert_int_equal(later.sum, 0);
	probes_free(p);
	child_stop(&c);
}

/* The argument is a pattern of test names such as "waits*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_have_their_causes_and_lengths),
		cmocka_unit_test(the_disk_is_waited_for),
		cmocka_unit_test(the_run_queue_is_told_apart),
		cmocka_unit_test(a_preempted_thread_does_not_wait),
		cmocka_unit_test(idle_and_kernel_threads_never_wait),
		cmocka_unit_test(who_was_never_in_user_space_is_left_out),
		cmocka_unit_test(nothing_counts_for_more_than_an_hour),
		cmocka_unit_test(limits_hold_across_drains),
		cmocka_unit_test(a_long_wait_appears_as_it_passes),
		cmocka_unit_test(a_wait_that_counts_late_has_its_stacks),
		cmocka_unit_test(ticks_take_no_stack_from_a_wait),
		cmocka_unit_test(waits_are_counted_while_somebody_asks),
		cmocka_unit_test(nothing_was_dropped),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
