/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workload_test: processes with known functions, known shares of CPU time and known addresses, for
 * the tests of probe/. They are forked from the test. So the bounds of the test's own sections show
 * which function an address belongs to.
 */
#pragma once

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testprogram.h"
#include "node/probe/internal.h"

#define IN_SECTION(name) __attribute__((noinline, noclone, used, section(#name)))
/* The linker makes symbols for the bounds of each section whose name is a C identifier. */
#define SECTION_BOUNDS(name) extern const char __start_##name[], __stop_##name[]
#define IN_RANGE(a, name)    ((a) >= (uintptr_t)__start_##name && (a) <= (uintptr_t)__stop_##name)

SECTION_BOUNDS(pf_short);
SECTION_BOUNDS(pf_long);
SECTION_BOUNDS(pf_loop);

/* Numbers that the workload has counted, in shared memory. */
struct truth {
	volatile uint64_t short_ns, long_ns;
	volatile uint32_t ready;
};

static inline uint64_t cpu_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static inline __attribute__((always_inline)) void spin(unsigned n)
{
	for (volatile unsigned i = 0; i < n * 1000; i++)
		;
}

IN_SECTION(pf_short) static void work_short(unsigned n)
{
	spin(n);
}

IN_SECTION(pf_long) static void work_long(unsigned n)
{
	spin(n);
}

/*
 * Works in pf_short and pf_long, about 1 : 3, for random times: fixed ones could keep step with the
 * timer.
 */
IN_SECTION(pf_loop) static void work(struct truth *t, volatile bool *stop)
{
	unsigned seed = getpid();

	while (!*stop) {
		uint64_t t0 = cpu_ns(CLOCK_THREAD_CPUTIME_ID), t1;

		work_short(100 + rand_r(&seed) % 1000);
		t1 = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
		work_long(300 + rand_r(&seed) % 3000);
		t->short_ns += t1 - t0;
		t->long_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - t1;
		t->ready = 1;
	}
}

struct child {
	pid_t pid;
	struct truth *truth;
	uint64_t start_ns;
};

/* Returns field 22 of /proc/PID/stat, in USER_HZ. */
static inline uint64_t start_of(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/stat", pid), *text = NULL;
	char *s;

	assert_int_equal(file_read(-1, path, 4096, &text, NULL), 0);
	s = strrchr(text, ')') + 1;
	for (int i = 0; i < 20; i++)
		s = strchr(s, ' ') + 1;
	return strtoull(s, NULL, 10) * PF_USER_HZ_NS;
}

typedef void body_fn(struct truth *t);

static inline void body_work(struct truth *t)
{
	bool stop = false;

	work(t, &stop);
}

static inline struct child child_start(body_fn *body, const char *comm)
{
	struct child c;

	c.truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(c.truth, MAP_FAILED);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (comm)
			prctl(PR_SET_NAME, comm);
		body(c.truth);
		_exit(0);
	}
	c.start_ns = start_of(c.pid);
	return c;
}

static inline void child_stop(struct child *c)
{
	if (c->pid > 0) {
		kill(c->pid, SIGKILL);
		waitpid(c->pid, NULL, 0);
	}
	munmap(c->truth, 4096);
	*c = (struct child){};
}

/* ---- probes ---- */

static inline struct probes *open_probes(struct probe_config c)
{
	struct field_error err = {};
	struct probes *p = NULL;
	int r;

	r = probes_new(&c, &p, &err);
	if (r == -EPERM || r == -EACCES) {
		print_message("skipped: BPF is not permitted here (%s)\n", err.reason);
		skip();
	}
	if (r)
		fail_msg("probes_new: %s: %s", err.path, err.reason);
	return p;
}

static inline void list_pids(struct probes *p, unsigned n, const struct child *c,
			     const unsigned *hz)
{
	struct listed_process l[8];

	for (unsigned i = 0; i < n; i++)
		l[i] = (struct listed_process){.id = {c[i].start_ns, c[i].pid},
					       .event_mask = 1u << EVENT_ON_CPU,
					       .sample_hz = hz[i]};
	assert_int_equal(probes_list(p, l, n), 0);
}

/* ---- tally: what the drains reported of one process ---- */

struct tally {
	pid_t pid;
	uint64_t n, value;
	uint64_t in_short, in_long, in_loop, with_kernel, lost, nameless;
	uint64_t others;  /* samples of any other process */
	uint64_t dropped; /* lost samples that the drains reported, of any process */
	uint64_t cgroup_id;
	unsigned seen, execs, exits;
	struct raw_proc last_proc;
	size_t deepest;
	const char *deepest_end;
};

static inline void tally_stack(struct tally *t, const struct raw_stack *s, uint64_t n)
{
	bool in_short = false, in_long = false, in_loop = false;

	if (!s) {
		t->lost += n;
		return;
	}
	for (size_t i = 0; i < s->n; i++) {
		in_short |= IN_RANGE(s->frames[i].address, pf_short);
		in_long |= IN_RANGE(s->frames[i].address, pf_long);
		in_loop |= IN_RANGE(s->frames[i].address, pf_loop);
	}
	t->in_short += in_short ? n : 0;
	t->in_long += in_long ? n : 0;
	t->in_loop += in_loop ? n : 0;
	if (s->n > t->deepest) {
		t->deepest = s->n;
		t->deepest_end = s->end_reason;
	}
}

static inline void tally_drain(struct tally *t, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];

		if ((pid_t)s->tgid != t->pid) {
			t->others += s->n;
			continue;
		}
		t->n += s->n;
		t->value += s->value;
		t->cgroup_id = s->cgroup_id;
		t->nameless += sample_drain_names(d, s->names) ? 0 : s->n;
		if (s->ustack)
			tally_stack(t, sample_drain_stack(d, s->ustack), s->n);
		if (s->kstack) {
			const struct raw_stack *k = sample_drain_stack(d, s->kstack);

			assert_true(!k || (k->n > 0 && k->frames[0].kernel));
			t->with_kernel += k ? s->n : 0;
			t->lost += k ? 0 : s->n;
		}
	}
	t->dropped += profile_losses_sum(&d->lost);
	for (size_t i = 0; i < d->n_procs; i++) {
		if ((pid_t)d->procs[i].tgid != t->pid)
			continue;
		t->last_proc = d->procs[i];
		t->seen += d->procs[i].what == RAW_PROC_SEEN;
		t->execs += d->procs[i].what == RAW_PROC_EXEC;
		t->exits += d->procs[i].what == RAW_PROC_EXIT;
	}
}

static inline void drain_into(struct probes *p, struct tally *t, size_t n)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	for (size_t i = 0; i < n; i++)
		tally_drain(&t[i], d);
	sample_drain_free(d);
}

static inline void nap(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Drains until t[0] has n samples. The deadline is long enough for a loaded machine. */
static inline void drain_until(struct probes *p, struct tally *t, size_t n_tallies, uint64_t n)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (t[0].n < n) {
		if (now_mono_ns() > deadline)
			fail_msg("%lu samples of pid %d in 60 s, wanted %lu", t[0].n, t[0].pid, n);
		nap(100);
		drain_into(p, t, n_tallies);
	}
}

static inline void assert_near(const char *what, double is, double should, double tolerance)
{
	if (is < should - tolerance || is > should + tolerance)
		fail_msg("%s: %f, should be %f +- %f", what, is, should, tolerance);
}
