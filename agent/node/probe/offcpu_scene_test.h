/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offcpu_scene_test: shared by tests of off-cpu: a process that waits, its probes, and what the
 * drains report of it.
 */
#pragma once

#include "node/probe/workload_test.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true                                                                   \
	}

/* ---- what was drained of one process ---- */

struct waits {
	pid_t pid;
	uint64_t us[_WAIT_MAX], n[_WAIT_MAX];
	uint64_t sum, lost, userless, others, last_tid;
	size_t shortest, longest; /* number of user frames */
};

static inline void take(struct waits *w, const struct drain *d)
{
	for (size_t i = 0; i < d->n_samples; i++) {
		const struct raw_sample *s = &d->samples[i];
		const struct raw_stack *u = sample_drain_stack(d, s->ustack);

		assert_int_equal(s->event, EVENT_OFF_CPU);
		if ((pid_t)s->tgid != w->pid) {
			w->others += s->n;
			continue;
		}
		assert_in_range(s->wait, WAIT_RUNQUEUE, _WAIT_MAX - 1);
		w->us[s->wait] += s->value;
		w->n[s->wait] += s->n;
		w->sum += s->value;
		w->last_tid = s->tid;
		w->userless += s->ustack ? 0 : s->n;
		w->lost += u && sample_drain_names(d, s->names) &&
					   (!s->kstack || sample_drain_stack(d, s->kstack))
				   ? 0
				   : s->n;
		if (u && (!w->shortest || u->n < w->shortest))
			w->shortest = u->n;
		if (u)
			w->longest = MAX(w->longest, u->n);
	}
}

static inline void drain(struct probes *p, struct waits *w, size_t n)
{
	struct drain *d = NULL;

	assert_int_equal(probes_drain(p, true, &d), 0);
	for (size_t i = 0; i < n; i++)
		take(&w[i], d);
	sample_drain_free(d);
}

static inline struct listed_process listed(const struct child *c)
{
	return (struct listed_process){.id = {c->start_ns, c->pid},
				       .event_mask = 1u << EVENT_OFF_CPU};
}

static inline struct probes *watch_by(struct probe_config config, const struct child *c,
				      struct event_settings settings, uint32_t off_keep)
{
	struct probes *p = open_probes(config);
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

static inline struct probes *watch(const struct child *c, struct event_settings settings,
				   uint32_t off_keep)
{
	return watch_by(LISTED, c, settings, off_keep);
}

static inline bool has_whole_waits(struct probes *p)
{
	size_t n;
	const struct support *s = probes_support(p, &n);

	return s[FEATURE_WHOLE_WAITS].ok;
}

/* ---- workloads: each begins when the test asks for that, and then only runs ---- */

/* Microseconds that a workload measured with its own clock. The kernel saw at most as much. */
struct known {
	struct truth base;
	volatile uint32_t go, wake, done;
	volatile uint64_t us[_WAIT_MAX], n[_WAIT_MAX], run_delay_ns, square;
};
_Static_assert(sizeof(struct known) <= 4096, "child_start()'s page");

static inline struct known *known_of(struct truth *t)
{
	return (struct known *)t;
}

static inline void begin(struct known *k)
{
	while (!k->go)
		spin(1);
}

static inline void end(struct known *k)
{
	k->done = 1;
	for (;;)
		spin(100);
}

static inline void until_done(struct probes *p, struct known *k, struct waits *w, size_t n)
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

/* Drains until a wait is counted. The workload goes on waiting. */
static inline void until_counted(struct probes *p, struct waits *w)
{
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;

	while (!w->sum) {
		assert_true(now_mono_ns() < deadline);
		nap(1);
		drain(p, w, 1);
	}
}

static inline uint64_t lost(const char *reason)
{
	return counter_get(counter("podflame_samples_dropped_total", "reason", reason));
}

static inline uint64_t now_us(void)
{
	return now_mono_ns() / 1000;
}

/* Returns the number after `name` in /proc/PID/`file`. */
static inline char *proc_field(pid_t pid, const char *file, const char *name)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/%s", pid, file), *text = NULL;
	const char *at;

	assert_int_equal(file_read(-1, path, 1 << 16, &text, NULL), 0);
	at = strstr(text, name);
	assert_non_null(at);
	return xstrdup(at + strlen(name));
}

/* Returns when the process waits for something. */
static inline void until_asleep(pid_t pid)
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

/* Returns how long this process's first thread waited in run queues. */
static inline uint64_t run_delay_ns(void)
{
	uint64_t ns = 0;

	(void)thread_cpu_wait_ns(getpid(), &ns);
	return ns;
}

/*
 * Asserts that the waits of this cause are not longer than the workload measured. If they are
 * shorter, the thread spent nearly all of the difference in run queues, as the kernel counts it.
 * k->n: number of planned waits. A thread that was not yet asleep when its event came did not wait.
 */
static inline void check_cause(const struct waits *w, const struct known *k, enum wait cause)
{
	uint64_t delay_us = k->run_delay_ns / 1000;

	if (w->us[cause] > k->us[cause])
		fail_msg("%s: %lu us, but it took %lu", profile_wait_name(cause), w->us[cause],
			 k->us[cause]);
	if (w->us[cause] + delay_us + 1000 * k->n[cause] < k->us[cause] * 9 / 10)
		fail_msg("%s: %lu us (and %lu in run queues), but it took %lu",
			 profile_wait_name(cause), w->us[cause], delay_us, k->us[cause]);
	assert_true(w->us[cause] > 0);
}

/* Waits once, until the test wakes it. */
static inline void body_until_woken(struct truth *t)
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

static inline void wake(struct known *k)
{
	k->wake = 1;
	syscall(SYS_futex, &k->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void nothing_was_dropped(void **state)
{
	static const char *const reasons[] = {"waits_full", "scratch_busy", "no_pid", "counts_full",
					      "counts_busy"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (lost(reasons[i]))
			fail_msg("%lu: %s", lost(reasons[i]), reasons[i]);
}
