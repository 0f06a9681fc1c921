// SPDX-License-Identifier: Apache-2.0
/* Waits of real threads, of known causes and lengths: the four rules, limits, drains, thinning. */
#include "node/probe/rows_test.h"
#include "node/probe/workload_test.h"

#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "core.skel.h"
#include "offcpu_walk.skel.h"

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true                                                                   \
	}
#define HOUR_US (3600ull * USEC_PER_SEC)

/* ---- what was drained of one process ---- */

struct waits {
	pid_t pid;
	uint64_t us[_WAIT_MAX], n[_WAIT_MAX];
	uint64_t sum, lost, userless, others, last_tid;
	size_t shortest, longest; /* frames of the user's stack */
};

static void take(struct waits *w, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = drain_stack(d, s->ustack);

		assert_int_equal(s->event, EVENT_OFF_CPU);
		if ((pid_t)s->tgid != w->pid) {
			w->others += s->n;
			continue;
		}
		assert_in_range(s->wait, WAIT_RUNQUEUE, WAIT_OTHER);
		w->us[s->wait] += s->value;
		w->n[s->wait] += s->n;
		w->sum += s->value;
		w->last_tid = s->tid;
		w->userless += s->ustack ? 0 : s->n;
		w->lost +=
			u && drain_names(d, s->names) && (!s->kstack || drain_stack(d, s->kstack))
				? 0
				: s->n;
		if (u && (!w->shortest || u->n < w->shortest))
			w->shortest = u->n;
		if (u)
			w->longest = MAX(w->longest, u->n);
	}
}

static void drain(struct probes *p, struct waits *w, size_t n)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	for (size_t i = 0; i < n; i++)
		take(&w[i], d);
	drain_free(d);
}

static struct listed_process listed(const struct child *c)
{
	return (struct listed_process){.tgid = c->pid,
				       .start_boottime_ns = c->start_ns,
				       .event_mask = 1u << EVENT_OFF_CPU};
}

static struct probes *watch(const struct child *c, struct event_settings settings,
			    uint32_t off_keep)
{
	struct probes *p = open_probes(LISTED);
	struct listed_process l = listed(c);
	size_t n;
	const struct support *s;

	l.settings = settings;
	l.off_keep = off_keep;
	assert_int_equal(probes_list(p, &l, 1), 0);
	s = probes_support(p, &n);
	if (!s[EVENT_OFF_CPU].ok)
		fail_msg("off-cpu: %s", s[EVENT_OFF_CPU].reason);
	return p;
}

/* ---- workloads: they begin when told, and then only run ---- */

/* Microseconds that a workload knows of, by its own clock: at least what the kernel saw. */
struct known {
	struct truth base;
	volatile uint32_t go, wake, done;
	volatile uint64_t us[_WAIT_MAX], n[_WAIT_MAX], run_delay_ns, square;
};
_Static_assert(sizeof(struct known) <= 4096, "child_start()'s page");

static struct known *known_of(struct truth *t)
{
	return (struct known *)t;
}

static void begin(struct known *k)
{
	while (!k->go)
		spin(1);
}

static void end(struct known *k)
{
	k->done = 1;
	for (;;)
		spin(100);
}

static void until_done(struct probes *p, struct known *k, struct waits *w, size_t n)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	k->go = 1;
	while (!k->done) {
		if (now_mono_ns() > deadline)
			fail_msg("the workload has not ended in 60 s");
		nap(50);
		drain(p, w, n);
	}
	drain(p, w, n);
}

/* It waits, and goes on waiting. */
static void until_counted(struct probes *p, struct waits *w)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!w->sum) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
		drain(p, w, 1);
	}
}

static uint64_t lost(const char *reason)
{
	return counter_get(counter("podflame_samples_dropped_total", "reason", reason));
}

static uint64_t now_us(void)
{
	return now_mono_ns() / 1000;
}

/* What /proc says of it in `file` behind `name`. */
static char *proc_field(pid_t pid, const char *file, const char *name)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/%s", pid, file), *text = NULL;
	const char *at;

	assert_int_equal(file_read(-1, path, 1 << 16, &text, NULL), 0);
	at = strstr(text, name);
	assert_non_null(at);
	return xstrdup(at + strlen(name));
}

/* Until it waits for something. */
static void until_asleep(pid_t pid)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	for (;;) {
		_cleanup_free_ char *state = proc_field(pid, "stat", ") ");

		if (state[0] == 'S')
			return;
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
}

#define TIMED(k, cause, call)                                                                      \
	do {                                                                                       \
		uint64_t before_ = now_us();                                                       \
                                                                                                   \
		(void)!(call);                                                                     \
		(k)->us[cause] += now_us() - before_;                                              \
		(k)->n[cause]++;                                                                   \
	} while (0)

#define NAP_US 20000

/* Answers what it is asked, a while later, on the descriptor that it is asked for; ends with its parent. */
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

/* Until its child ends, the parent waits uninterruptibly; for no disk. */
static __attribute__((noinline)) int wait_for_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		usleep(NAP_US);
		_exit(0);
	}
	return pid;
}

/* /proc/self/schedstat: ns on a CPU, ns in a run queue, slices. */
static uint64_t run_delay_ns(void)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(-1, "/proc/self/schedstat", 256, &text, NULL))
		return 0;
	return strtoull(strchr(text, ' '), NULL, 10);
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

/*
 * All but a few waits are there, none is longer than it took. The rest is what it was in run queues,
 * waiting or preempted, as the kernel counts it; n: a thread that was awake in time did not wait.
 */
static void check_cause(const struct waits *w, const struct known *k, enum wait cause)
{
	uint64_t delay_us = k->run_delay_ns / 1000;

	if (w->us[cause] > k->us[cause])
		fail_msg("%s: %lu us, but it took %lu", wait_name(cause), w->us[cause],
			 k->us[cause]);
	if (w->us[cause] + delay_us + 1000 * k->n[cause] < k->us[cause] * 9 / 10)
		fail_msg("%s: %lu us (and %lu in run queues), but it took %lu", wait_name(cause),
			 w->us[cause], delay_us, k->us[cause]);
	assert_true(w->us[cause] > 0);
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
	for (enum wait cause = WAIT_LOCK; cause < _WAIT_MAX; cause++) {
		check_cause(&w, k, cause);
		sum += k->us[cause];
	}
	/*
	 * Machines of this project's CI run no tracing program, nor ftrace's events, in the context of their supervisor's
	 * threads (process 1): nobody sees what wakes there, nor what it is switched to, and that is counted.
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

/* Holds its CPU for a while, whoever else wants it. */
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
	/* What it waited for a CPU after being preempted is no wait; little, as it hardly runs. */
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

/* Rule one: who was preempted does not wait. */
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

/* PF_KTHREAD of the flags in /proc/PID/stat, field 9. */
static bool is_kernel_thread(uint32_t tid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%u/stat", tid), *text = NULL;
	char *s;

	if (file_read(-1, path, 4096, &text, NULL))
		return false; /* it has ended */
	s = strrchr(text, ')') + 1;
	for (int i = 0; i < 7; i++)
		s = strchr(s, ' ') + 1;
	return strtoul(s, NULL, 10) & 0x00200000;
}

static void idle_and_kernel_threads_never_wait(void **state)
{
	struct probe_config config = {.use_cgroups = true};
	struct procs_filter root = {.event_mask = 1u << EVENT_OFF_CPU};
	struct field_error err = {};
	struct bpf_map *map;
	uint32_t tid, *at = NULL;
	unsigned n = 0;
	struct probes *p;
	struct drain *d;
	struct stat st;

	(void)state;
	assert_int_equal(cgroup_choose("", &config.hierarchy, &err), 0);
	assert_int_equal(stat(config.hierarchy.mount, &st), 0);
	root.cgroup_id = st.st_ino;
	p = open_probes(config);
	assert_int_equal(probes_filter(p, &root, 1), 0);
	/* They wake up all the time: to write back, to keep RCU going. */
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
	drain_free(d);
	probes_free(p);
}

/* ---- rule three: at least one user function ---- */

/* A thread of the process that never was in user space: it polls a submission queue. */
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

/* ---- rule four, and the limits that are asked for ---- */

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

static void body_two_lengths(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	for (int i = 0; i < 10; i++) {
		usleep(1000);
		TIMED(k, WAIT_SLEEP, usleep(300000));
	}
	end(k);
}

/* Drains come each 50 ms, so the long ones span several: still, each counts for its first 100 ms alone. */
static void limits_hold_across_drains(void **state)
{
	struct child c = child_start(body_two_lengths, NULL);
	struct event_settings s = {.min_block_us = 150000, .max_block_us = 200000};
	struct probes *p = watch(&c, s, 0);
	struct waits w = {.pid = c.pid};

	(void)state;
	until_done(p, known_of(c.truth), &w, 1);
	/* The others slept for a millisecond, and longer where the machine is busy: not 150 times as long. */
	assert_int_equal(w.sum, 10 * 200000);
	assert_int_equal(w.lost, 0);
	probes_free(p);
	child_stop(&c);
}

/* One that lasts until it is woken. */
static void body_until_woken(struct truth *t)
{
	struct known *k = known_of(t);
	uint64_t delay_ns;

	begin(k);
	k->base.ready = 1;
	delay_ns = run_delay_ns();
	TIMED(k, WAIT_LOCK, syscall(SYS_futex, &k->wake, FUTEX_WAIT, 0, NULL, NULL, 0));
	k->run_delay_ns = run_delay_ns() - delay_ns;
	end(k);
}

static void wake(struct known *k)
{
	k->wake = 1;
	syscall(SYS_futex, &k->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
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
		/* All of it that has passed up to this drain; each part is cut off to microseconds. */
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

/* Its stacks were sent long before it counts. */
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

static int never[2]; /* a pipe that nobody writes to */

/* Reads what costs CPU time, then what never comes, from the same place: a tick in the kernel is where it waits later. */
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
			n += same_frames(drain_stack(d, d->samples[i].ustack), where);
	return n;
}

/* A wait's stack is kept until it counts, also when ticks have been there in the second in which it began. */
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
	drain_free(drain_of(p));
	used = program_cpu_ns(c.pid);
	while (program_cpu_ns(c.pid) - used < NSEC_PER_SEC / 5 && now_mono_ns() < deadline)
		nap(10);
	known_of(c.truth)->go = 1;
	until_asleep(c.pid);
	began = drain_of(p);
	assert_null(first_wait(began));
	for (d = drain_of(p); !(s = first_wait(d)) && now_mono_ns() < deadline; d = drain_of(p)) {
		drain_free(d);
		nap(100);
	}
	assert_non_null(s);
	assert_non_null(drain_stack(d, s->ustack));
	assert_true(ticks_there(began, drain_stack(d, s->ustack)) > 0);
	drain_free(began);
	drain_free(d);
	probes_free(p);
	child_stop(&c);
	close(never[0]);
	close(never[1]);
}

/* What is going on when the last target goes is counted, too, and starts anew with the next. */
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
			now_us() - began); /* two are cut off to microseconds */
	assert_true(w.sum <= now_us() - began);
	assert_int_equal(w.us[WAIT_LOCK], w.sum);
	/* Its wait began before anybody looked again: it is not made up. */
	assert_int_equal(probes_list(p, &l, 1), 0);
	wake(k);
	until_done(p, k, &later, 1);
	assert_int_equal(later.sum, 0);
	probes_free(p);
	child_stop(&c);
}

/* ---- thinned ---- */

static void body_random_naps(struct truth *t)
{
	struct known *k = known_of(t);
	unsigned seed = 1;

	begin(k);
	for (int i = 0; i < 4000; i++)
		usleep(100 + rand_r(&seed) % 900);
	end(k);
}

static struct probe_usage usage_of(struct probes *p)
{
	struct probe_usage *u = NULL, sum = {};
	size_t n;

	assert_int_equal(probes_usage(p, &u, &n), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(u[i].event, EVENT_OFF_CPU);
		sum.hits += u[i].hits;
		sum.taken += u[i].taken;
		sum.value += u[i].value;
		sum.square += u[i].square;
	}
	free(u);
	return sum;
}

static double root(double x)
{
	double r = x;

	for (int i = 0; i < 200 && r > 0; i++)
		r = (r + x / r) / 2;
	return r;
}

#define ONE_IN(n) (UINT32_MAX / (n))

static struct probes *watch_some(const struct child *c, uint32_t off_note, uint32_t off_keep)
{
	struct probes *p = watch(c, (struct event_settings){.min_block_us = 50}, off_keep);
	struct listed_process l = listed(c);

	l.settings.min_block_us = 50;
	l.off_note = off_note;
	l.off_keep = off_keep;
	assert_int_equal(probes_list(p, &l, 1), 0);
	return p;
}

/* Beside an observer that keeps all: the sum differs by less than four times the error that is told. */
static void adds_up_to_the_whole(uint32_t off_note, uint32_t off_keep, double kept)
{
	struct child c = child_start(body_random_naps, NULL);
	struct probes *all = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct probes *some = watch_some(&c, off_note, off_keep);
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid}, v = {.pid = c.pid};
	struct probe_usage u, whole;
	double sigma, noted = ((double)off_note + 1) / 4294967296.0;

	k->go = 1;
	while (!k->done) {
		nap(100);
		drain(all, &w, 1);
		drain(some, &v, 1);
	}
	drain(all, &w, 1);
	drain(some, &v, 1);
	u = usage_of(some);
	whole = usage_of(all);
	sigma = root(u.square * (double)(1 << 20));
	print_message("all %lu us of %lu waits; %.3g noted: %lu us +- %.0f, %lu of %lu kept\n",
		      w.sum, whole.hits, noted, v.sum, sigma, u.taken, u.hits);
	assert_int_equal(whole.square, 0);
	assert_int_equal(whole.taken, whole.hits);
	assert_int_equal(whole.value, w.sum);
	assert_int_equal(u.value, v.sum);
	/* Those noted stand for the others. */
	assert_near("hits", u.hits / (double)whole.hits, 1,
		    0.02 + 5 * root((1 / noted - 1) / whole.hits));
	assert_near("kept", u.taken / (double)whole.hits, kept,
		    5 * root(kept * (1 - kept) / whole.hits));
	assert_true(sigma > 0 && sigma < w.sum / 3.0);
	assert_near("sum", (double)v.sum, (double)w.sum, 5 * sigma);
	assert_near("waits", v.n[WAIT_SLEEP] / (double)w.n[WAIT_SLEEP], 1,
		    5 * root((1 / kept - 1) / whole.hits));
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

static void one_in_eight_adds_up_to_the_whole(void **state)
{
	(void)state;
	adds_up_to_the_whole(UINT32_MAX, ONE_IN(8), 1 / 8.0);
}

static void what_is_noted_stands_for_what_is_not(void **state)
{
	(void)state;
	adds_up_to_the_whole(ONE_IN(4), ONE_IN(16), 1 / 16.0);
}

static void body_many_naps(struct truth *t)
{
	struct known *k = known_of(t);

	begin(k);
	for (;;) {
		usleep(200);
		k->n[WAIT_SLEEP]++;
	}
}

/* Its entry is there, of a wait that was noted: it says nothing of those that are not. */
static void what_is_not_noted_leaves_nothing(void **state)
{
	struct child c = child_start(body_many_naps, NULL);
	struct probes *p = watch_some(&c, UINT32_MAX, UINT32_MAX);
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid};
	struct listed_process l = listed(&c);
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, before, hits, n;

	(void)state;
	k->go = 1;
	while (!w.sum) {
		assert_true(now_mono_ns() < deadline);
		nap(10);
		drain(p, &w, 1);
	}
	l.off_note = l.off_keep = 1; /* 2 of 2^32 */
	assert_int_equal(probes_list(p, &l, 1), 0);
	/* The wait that it was in is counted to its end. */
	do {
		before = w.sum;
		n = k->n[WAIT_SLEEP];
		while (k->n[WAIT_SLEEP] < n + 2)
			nap(1);
		drain(p, &w, 1);
	} while (w.sum != before && now_mono_ns() < deadline);
	hits = usage_of(p).hits;
	n = k->n[WAIT_SLEEP];
	while (k->n[WAIT_SLEEP] < n + 500) {
		nap(10);
		drain(p, &w, 1);
	}
	drain(p, &w, 1);
	assert_int_equal(w.sum, before);
	assert_int_equal(usage_of(p).hits, hits);
	/* And it is seen again from its next one on. */
	l.off_note = l.off_keep = 0;
	assert_int_equal(probes_list(p, &l, 1), 0);
	while (w.sum == before) {
		assert_true(now_mono_ns() < deadline);
		nap(10);
		drain(p, &w, 1);
	}
	probes_free(p);
	child_stop(&c);
}

/* ---- an end that nobody saw ---- */

static void body_two_waits(struct truth *t)
{
	const struct sched_param first = {.sched_priority = 1};
	struct known *k = known_of(t);

	begin(k);
	/* So that hardly anybody takes its CPU away in between. */
	sched_setscheduler(0, SCHED_FIFO, &first);
	usleep(1000);
	k->base.ready = 1;
	while (!k->wake)
		spin(1);
	TIMED(k, WAIT_SLEEP, usleep(50000));
	end(k);
}

/* Words of struct pf_waiting. */
enum { WAITING_SINCE = 1, WAITING_COUNTED = 3, WAITING_KEY = 8 };

/*
 * Under which number the table of waits has a thread: that of the initial PID namespace, which may
 * not be the test's. Fails when no wait of the thread is noted in two minutes.
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
 * As if the program had been left out at the end of the first wait: it goes on in the tables, while its thread runs.
 * Returns how many n_going_on() tells of then, until the thread is switched out.
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
	assert_true(wait[WAITING_COUNTED] == UINT64_MAX); /* it was seen, of course */
	wait[WAITING_COUNTED] = wait[WAITING_SINCE];
	assert_int_equal(bpf_map_update_elem(waits, &number, wait, BPF_EXIST), 0);
	assert_int_equal(bpf_obj_get_info_by_fd(threads, &info, &n), 0);
	for (uint32_t slot = 0; slot < info.max_entries; slot++)
		assert_int_equal(bpf_map_update_elem(threads, &slot, &one, BPF_ANY), 0);
	return info.max_entries;
}

/* How many waits go on, by the table that tells quickly that one does not. */
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

/* As long as it was. Beside it, it may be preempted, or stand at a page or a lock for a moment. */
static void assert_one_wait(const struct waits *w, const struct known *k)
{
	assert_in_range(w->sum - w->us[WAIT_RUNQUEUE], 45000, k->us[WAIT_SLEEP] + 1000);
}

/* false: somebody took its CPU away, and it was seen to get it back, which ended the wait. */
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
	while (!k->done) { /* no drain, which counts what goes on */
		assert_true(now_mono_ns() < deadline);
		nap(1);
	}
	valid = preempted(c.pid) == n_preempted;
	w = (struct waits){.pid = c.pid};
	drain(p, &w, 1);
	if (valid) {
		assert_int_equal(lost("end_unseen"), before + 1);
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

/* ---- threads whose number was another's ---- */

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

/* A thread that execs goes on under its process's number: of its own nothing is kept. */
static void who_execs_beside_the_first_thread_leaves_nothing(void **state)
{
	struct child c = child_start(body_execs_beside, NULL);
	struct known *k = known_of(c.truth);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	int map = bpf_object__find_map_fd_by_name(p->events[EVENT_OFF_CPU].obj, "waits");
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	_cleanup_free_ void *w = xcalloc(1, 4096); /* struct pf_waiting */
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
	assert_int_equal(lend_maps(p, b->obj), 0);
	assert_int_equal(offcpu_walk_bpf__load(b), 0);
	return b;
}

/*
 * A machine that runs tests cannot be suspended. But nothing except pf_wait_clock() calls this clock, which stands meanwhile:
 * so each place that measures waits is seen to. Loaded programs have their functions with them.
 */
static void time_asleep_is_nobodys_wait(void **state)
{
	static const struct {
		const char *program;
		unsigned n;
	} places[] = {
		{"pf_switch", 2}, /* one ends, one begins */
		{"pf_wakeup", 1}, {"pf_waits_now", 1}, {"pf_thread_exit", 0}, {"pf_thread_exec", 0},
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

/* ---- stacks: walked, and recognised ---- */

/* nanosleep() in the section of rows_test.h: CFA = rsp + 8 all along; its frames keep no frame pointers. */
__asm__(".pushsection pf_rows,\"ax\",@progbits\n"
	".balign 64\n"
	"pf_rows_nap:\n"
	"	lea offcpu_nap(%rip),%rdi\n"
	"	xor %esi,%esi\n"
	"	mov $35,%eax\n"
	"	syscall\n"
	"	ret\n"
	".balign 64\n"
	".popsection\n");
void pf_rows_nap(void);
extern struct timespec offcpu_nap;
struct timespec offcpu_nap = {0, 1000000};

static void install_nap_rows(struct probes *p)
{
	static const struct pf_rule rules[] = {
		{.cfa = PF_CFA_RSP, .cfa_offset = 8},
		{.cfa = PF_CFA_RSP, .cfa_offset = 16, .fp = PF_FP_CFA, .fp_offset = -16},
		{.cfa = PF_CFA_RSP, .cfa_offset = 32},
	};
	uint16_t ret = pf_rows_ret - (const char *)__start_pf_rows;
	uint16_t nap_at = (const char *)pf_rows_nap - (const char *)__start_pf_rows;
	const struct pf_row rows[] = {{0, 0},  {1, 1},	 {12, 0},    {64, 0},
				      {68, 2}, {ret, 0}, {nap_at, 0}};

	rows_write(p, rows, ARRAY_SIZE(rows), rules, ARRAY_SIZE(rules));
}

/* 300 waits at depth 10, then 100 at depth 30, then 10 and 30 by turns. */
static void body_depths(struct truth *t)
{
	struct known *k = known_of(t);

	/* Its process is told of by its first wait; then it waits to be given its tables. */
	while (!k->go)
		usleep(1000);
	for (int i = 0; i < 800; i++)
		pf_rows_enter(i < 300 || (i >= 400 && i % 2) ? 10 : 30, pf_rows_nap);
	end(k);
}

static void give_tables(struct probes *p, const struct child *c)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	bool given = false;

	while (!given && now_mono_ns() < deadline) {
		struct drain *d = NULL;
		struct mappings *m;

		nap(10);
		assert_int_equal(probes_drain(p, false, &d), 0);
		for (size_t i = 0; i < d->n_procs && !given; i++)
			if ((pid_t)d->procs[i].tgid == c->pid &&
			    !mappings_read(c->pid, c->start_ns, d->procs[i].exec_id, &m)) {
				rows_process(p, &d->procs[i], m->exec_pages);
				mappings_unref(m);
				given = true;
			}
		drain_free(d);
	}
	assert_true(given);
}

/* ---- thinned: what goes on is whole ---- */

#define LASTING 3 /* threads that wait for long */

static void *wait_long(void *arg)
{
	(void)arg;
	for (int i = 0; i < 3; i++)
		pf_rows_enter(10, pf_rows_nap);
	return NULL;
}

/* Beside many short waits a few long ones, all from one place. */
static void body_long_and_short(struct truth *t)
{
	struct known *k = known_of(t);
	pthread_t threads[LASTING];
	unsigned seed = 1;

	/* Its process is told of by its first wait; then it waits to be given its tables. */
	while (!k->go)
		usleep(1000);
	offcpu_nap = (struct timespec){1, 300000000};
	for (int i = 0; i < LASTING; i++)
		pthread_create(&threads[i], NULL, wait_long, NULL);
	for (int i = 0; i < 4000; i++) {
		uint64_t began = now_us(), took;

		usleep(100 + rand_r(&seed) % 900);
		took = now_us() - began;
		k->square += took * took;
	}
	for (int i = 0; i < LASTING; i++)
		pthread_join(threads[i], NULL);
	end(k);
}

struct by_thread {
	uint64_t tid, us;
	size_t n_frames, n_kernel;
	uint64_t frames[64], outermost; /* of the last sample that waits; the kernel's */
};
struct threads {
	struct by_thread items[LASTING + 1];
	size_t n;
	uint64_t lost;
};

static struct by_thread *thread_of(struct threads *t, uint64_t tid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i].tid == tid)
			return &t->items[i];
	assert_in_range(t->n, 0, LASTING);
	t->items[t->n].tid = tid;
	return &t->items[t->n++];
}

static void take_threads(struct threads *t, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = drain_stack(d, s->ustack);
		const struct raw_stack *k = drain_stack(d, s->kstack);
		struct by_thread *b = thread_of(t, s->tid);

		b->us += s->value;
		t->lost += !u || !k || !drain_names(d, s->names);
		if (!u || !k)
			continue;
		b->n_frames = u->n;
		b->n_kernel = k->n;
		b->outermost = k->frames[k->n - 1].address;
		for (size_t f = 0; f < MIN(u->n, ARRAY_SIZE(b->frames)); f++)
			b->frames[f] = u->frames[f].address;
	}
}

static void drain_threads(struct probes *p, struct threads *t)
{
	struct drain *d;

	assert_int_equal(probes_drain(p, true, &d), 0);
	take_threads(t, d);
	drain_free(d);
}

/* The stacks are those that the observer who keeps all took at the switch; the kernel leaves out the scheduler's part. */
static void check_lasting(const struct by_thread *is, const struct by_thread *should)
{
	assert_near("a long wait", is->us / (double)should->us, 1, 0.01);
	assert_int_equal(is->n_frames, should->n_frames);
	assert_memory_equal(is->frames, should->frames,
			    MIN(is->n_frames, ARRAY_SIZE(is->frames)) * sizeof(is->frames[0]));
	assert_in_range(is->n_kernel, 1, should->n_kernel);
	assert_int_equal(is->outermost, should->outermost);
}

static bool has_whole_waits(struct probes *p)
{
	size_t n;
	const struct support *s = probes_support(p, &n);

	return s[FEATURE_WHOLE_WAITS].ok;
}

/* 1 in 50 is kept; still, the long ones are exact, and what error there is, is of the short ones. */
static void long_waits_are_whole_when_thinned(void **state)
{
	struct event_settings settings = {.min_block_us = 50};
	struct child c = child_start(body_long_and_short, NULL);
	struct probes *all = watch(&c, settings, 0), *some = watch(&c, settings, UINT32_MAX / 50);
	struct known *k = known_of(c.truth);
	uint64_t deadline, before;
	struct threads a = {}, b = {};
	double sigma, told;

	(void)state;
	if (!has_whole_waits(some)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		skip();
	}
	install_nap_rows(all);
	install_nap_rows(some);
	give_tables(all, &c);
	give_tables(some, &c);
	/* The first one brings the programs that look: that takes a while. */
	drain_threads(some, &b);
	drain_threads(some, &b);
	drain_threads(all, &a);
	a = b = (struct threads){};
	before = usage_of(some).square;
	k->go = 1;
	deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	while (!k->done) {
		nap(300);
		assert_true(now_mono_ns() < deadline);
		drain_threads(all, &a);
		drain_threads(some, &b);
	}
	drain_threads(all, &a);
	drain_threads(some, &b);
	/*
	 * What is told is of the few that were kept; where others hold the CPU, the longest may or may not be among
	 * them. Of a long one that counts 50 times it would be 65 s.
	 */
	told = root((usage_of(some).square - before) * (double)(1 << 20));
	sigma = MAX(told, root(49.0 * (double)k->square));
	print_message("+- %.0f us is told, up to %.0f it is\n", told, sigma);
	assert_true(told > 0 && told < 30 * USEC_PER_SEC);
	for (size_t i = 0; i < a.n; i++) {
		struct by_thread *is = thread_of(&b, a.items[i].tid), *should = &a.items[i];

		print_message("thread %lu: %lu us of %lu, %zu frames\n", is->tid, is->us,
			      should->us, is->n_frames);
		if (is->tid != (uint64_t)c.pid)
			check_lasting(is, should);
		else
			assert_near("short waits", (double)is->us, (double)should->us, 5 * sigma);
	}
	assert_int_equal(a.n, LASTING + 1);
	assert_int_equal(b.lost, 0);
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

#define SLEEPERS 64
#define SLEEPS	 4

static void *sleep_long(void *arg)
{
	(void)arg;
	for (int i = 0; i < SLEEPS; i++)
		usleep(500000);
	return NULL;
}

static void body_sleepers(struct truth *t)
{
	struct known *k = known_of(t);
	pthread_t threads[SLEEPERS];

	begin(k);
	for (int i = 0; i < SLEEPERS; i++)
		pthread_create(&threads[i], NULL, sleep_long, NULL);
	for (int i = 0; i < SLEEPERS; i++)
		pthread_join(threads[i], NULL);
	end(k);
}

/* 1 in 4 is noted, 1 in 64 kept: what goes on counts 4 times, and what is told of its error says so. */
static void whole_waits_stand_for_those_not_noted(void **state)
{
	struct child c = child_start(body_sleepers, NULL);
	struct probes *all = watch(&c, (struct event_settings){.min_block_us = 50}, 0);
	struct probes *some = watch_some(&c, ONE_IN(4), ONE_IN(64));
	struct known *k = known_of(c.truth);
	struct waits w = {.pid = c.pid}, v = {.pid = c.pid};
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	double told;

	(void)state;
	if (!has_whole_waits(some)) {
		print_message("skipped: this kernel cannot walk other tasks\n");
		skip();
	}
	/* The first one brings the programs that look: that takes a while. */
	drain(some, &v, 1);
	drain(some, &v, 1);
	k->go = 1;
	while (!k->done) {
		assert_true(now_mono_ns() < deadline);
		nap(200);
		drain(some, &v, 1);
		drain(all, &w, 1);
	}
	drain(some, &v, 1);
	drain(all, &w, 1);
	told = root(usage_of(some).square * (double)(1 << 20));
	print_message("all %lu us; 1 in 4 noted: %lu us +- %.0f\n", w.sum, v.sum, told);
	/* sqrt(3 / 256) of it, and sqrt(63 / 256) if they were counted by what is kept. */
	assert_in_range(told, w.sum / 25, w.sum * 35 / 100);
	assert_near("sum", (double)v.sum, (double)w.sum, 5 * told);
	assert_int_equal(v.lost, 0);
	probes_free(all);
	probes_free(some);
	child_stop(&c);
}

struct depths {
	uint64_t whole, n[40];
};

static void take_depths(struct depths *t, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = drain_stack(d, s->ustack);
		size_t in_rows = 0;

		if (s->wait != WAIT_SLEEP)
			continue;
		for (size_t f = 0; u && f < u->n; f++)
			in_rows += IN_RANGE(u->frames[f].address, pf_rows);
		if (in_rows && in_rows < ARRAY_SIZE(t->n)) {
			t->n[in_rows] += s->n;
			t->whole += s->n;
		}
	}
}

/* Each wait has the stack that it had, whether it was the thread's last one or not. */
static void stacks_are_whole_and_their_own(void **state)
{
	struct child c = child_start(body_depths, NULL);
	struct probes *p = watch(&c, (struct event_settings){}, 0);
	struct known *k = known_of(c.truth);
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct depths t = {};
	struct drain *d;

	(void)state;
	install_nap_rows(p);
	give_tables(p, &c);
	assert_int_equal(probes_drain(p, true, &d), 0);
	drain_free(d);
	k->go = 1;
	do {
		nap(100);
		assert_true(now_mono_ns() < deadline);
		assert_int_equal(probes_drain(p, true, &d), 0);
		take_depths(&t, d);
		drain_free(d);
	} while (!k->done);
	assert_int_equal(probes_drain(p, true, &d), 0);
	take_depths(&t, d);
	drain_free(d);
	/*
	 * pf_rows_nap, the frames of pf_rows_down, pf_rows_enter. A wait that a drain cuts is told in two parts;
	 * whoever is preempted on the way until its time has come does not wait.
	 */
	assert_in_range(t.whole, 720, 840);
	assert_in_range(t.n[12], 450, 530);
	assert_in_range(t.n[32], 270, 325);
	assert_int_equal(t.n[12] + t.n[32], t.whole);
	probes_free(p);
	child_stop(&c);
}

/* ---- loss ---- */

static void nothing_was_dropped(void **state)
{
	static const char *const reasons[] = {"waits_full", "scratch_busy", "no_pid", "counts_full",
					      "counts_busy"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (lost(reasons[i]))
			fail_msg("%lu: %s", lost(reasons[i]), reasons[i]);
}

static void body_short_naps(struct truth *t)
{
	t->ready = 1;
	for (;;)
		nap(1);
}

/* More threads wait than the table holds: the waits of the next one are counted as lost. */
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
		/* no thread has such a number; the child's own place is taken */
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

/* Of which tests: a pattern such as "waits*"; all. */
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
		cmocka_unit_test(one_in_eight_adds_up_to_the_whole),
		cmocka_unit_test(what_is_noted_stands_for_what_is_not),
		cmocka_unit_test(what_is_not_noted_leaves_nothing),
		cmocka_unit_test(an_end_that_nobody_saw_is_told),
		cmocka_unit_test(a_reused_number_is_another_thread),
		cmocka_unit_test(who_execs_beside_the_first_thread_leaves_nothing),
		cmocka_unit_test(time_asleep_is_nobodys_wait),
		cmocka_unit_test(long_waits_are_whole_when_thinned),
		cmocka_unit_test(whole_waits_stand_for_those_not_noted),
		cmocka_unit_test(stacks_are_whole_and_their_own),
		cmocka_unit_test(nothing_was_dropped),
		cmocka_unit_test(threads_beyond_the_table_are_counted),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
