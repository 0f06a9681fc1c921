/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of overhead only: a node without an API server, processes that allocate memory, and the
 * samples of them that arrive.
 */
#pragma once

#include "lib/base/testprogram.h"
#include "node/follow/testfollow.h"
#include "node/internal.h"
#include "node/limit/testpayers.h"
#include "node/plan/testplan.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/testsink.h"

#define LIMIT_NS (90 * NSEC_PER_SEC)
#define ALLOC	 (1u << EVENT_MEM_ALLOC)
#define INUSE	 (1u << EVENT_MEM_INUSE)
#define HBM	 (1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE)

/* ---- processes: they write what they do to memory that the test can read ---- */

struct truth {
	uint64_t bytes, leaked;
	uint64_t go;	  /* the test sets it: what else the process shall do */
	uint64_t slow_ns; /* used by bursts() */
};
/* an allocation with a probe takes longer than this; one without takes a tenth of it */
#define SLOW_NS 500
static volatile struct truth *truth;

static void *volatile kept[4096];

__attribute__((noinline, noclone)) static void allocate(size_t n)
{
	void *volatile p = malloc(n); /* volatile, so that the compiler does not remove the call */

	free(p);
	__atomic_add_fetch(&truth->bytes, n, __ATOMIC_RELAXED);
}

__attribute__((noinline, noclone)) static void leak(size_t n)
{
	static size_t n_kept;

	if (n_kept == ARRAY_SIZE(kept))
		return;
	kept[n_kept++] = malloc(n);
	__atomic_add_fetch(&truth->leaked, n, __ATOMIC_RELAXED);
}

/* CPU time between allocations; a trial (10 ms) meets the traps of one of them at most */
#define CALM_NS (20 * NSEC_PER_MSEC)

static inline void calm(void)
{
	for (unsigned i = 0;; i++) {
		uint64_t until_ns = thread_cpu_ns() + CALM_NS;

		allocate(1000);
		if (i % 4 == 0)
			leak(4096);
		while (thread_cpu_ns() < until_ns)
			;
		usleep(1000);
	}
}

/* much more than a trap takes; while probes are attached, the traps take a fifth of the time */
#define OFTEN_NS 6000

static inline void often(void)
{
	for (;;) {
		uint64_t until_ns;

		allocate(256);
		until_ns = now_mono_ns() + OFTEN_NS;
		while (now_mono_ns() < until_ns)
			;
	}
}

static inline void sleeps(void)
{
	for (;;)
		pause();
}

static pid_t start(const char *cgroup, void (*body)(void))
{
	_cleanup_free_ char *path = xasprintf("%s/cgroup.procs", cgroup);
	pid_t pid = fork();
	FILE *f;

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "pf-alloc");
	f = fopen(path, "w");
	if (!f || fputs("0", f) < 0 || fclose(f) < 0)
		_exit(3);
	body();
	_exit(0);
}

/* ---- what arrived ---- */

static struct {
	pthread_mutex_t lock;
	uint64_t alloc_bytes, inuse_bytes, on_cpu_us, hbm_alloc_bytes, hbm_inuse_bytes, on_gpu_us;
	uint32_t ppm;
	double variance;
	unsigned n_inuse;
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void note(const struct batch *b, const struct profile *p)
{
	uint64_t sum = 0;

	(void)b;
	if (!str_equal(p->app_service, "pf-alloc"))
		return;
	for (size_t i = 0; i < p->n_samples; i++)
		sum += (uint64_t)p->samples[i].value;
	if (p->event == EVENT_ON_CPU)
		arrived.on_cpu_us += sum;
	if (p->event == EVENT_ON_GPU)
		arrived.on_gpu_us += sum;
	if (p->event == EVENT_HBM_ALLOC)
		arrived.hbm_alloc_bytes += sum;
	if (p->event == EVENT_HBM_INUSE)
		arrived.hbm_inuse_bytes = sum;
	if (p->event == EVENT_MEM_ALLOC)
		arrived.alloc_bytes += sum;
	if (p->event == EVENT_MEM_ALLOC || p->event == EVENT_ON_GPU) {
		arrived.ppm = p->estimate_ppm;
		arrived.variance += (double)p->estimate_error * (double)p->estimate_error;
	} else if (p->event == EVENT_MEM_INUSE) {
		arrived.inuse_bytes = sum;
		arrived.n_inuse++;
	}
}

/* Takes what the agent would send to the hub. Runs on a worker's thread. */
static inline int take(const void *body, size_t n, void *arg)
{
	(void)arg;
	return testsink_take(body, n, &arrived.lock, note);
}

/* ---- the node ---- */

struct fixture {
	struct loop *loop;
	struct config conf;
	struct node *node;
	char dir[64], top[400], pod[512], container[600];
	char uid[40], id[CONTAINER_ID_BYTES]; /* different from those of any other process here */
	struct timer poll;
	bool (*until)(struct fixture *f);
	uint64_t due_ns;
	bool reached;
	pid_t pid, other;
	struct rlimit files; /* the limit before the test changed it; all 0: it was not changed */
};

static inline int setup(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	conf_init(&f->conf);
	snprintf(f->dir, sizeof(f->dir), "/tmp/overhead-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	free(f->conf.data_dir);
	f->conf.data_dir = xstrdup(f->dir);
	free(f->conf.node_name);
	f->conf.node_name = xstrdup("node-a");
	f->conf.window_ns = NSEC_PER_SEC;
	assert_int_equal(loop_new(&f->loop), 0);
	arrived.alloc_bytes = arrived.inuse_bytes = arrived.on_cpu_us = 0;
	arrived.hbm_alloc_bytes = arrived.hbm_inuse_bytes = arrived.on_gpu_us = 0;
	arrived.variance = 0;
	arrived.ppm = arrived.n_inuse = 0;
	*truth = (struct truth){0};
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	const char *const dirs[] = {f->container, f->pod, f->top, f->dir};
	_cleanup_free_ char *path = xasprintf("%s/node-state.json", f->dir);
	uint64_t due_ns = now_mono_ns() + 60 * NSEC_PER_SEC;

	if (f->files.rlim_cur)
		setrlimit(RLIMIT_NOFILE, &f->files);
	node_free(f->node);
	if (f->pid) {
		kill(-f->pid, SIGKILL);
		kill(f->pid, SIGKILL);
		waitpid(f->pid, NULL, 0);
	}
	if (f->other) {
		kill(f->other, SIGKILL);
		waitpid(f->other, NULL, 0);
	}
	unlink(path);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		while (*dirs[i] && rmdir(dirs[i]) < 0 && errno == EBUSY && now_mono_ns() < due_ns)
			usleep(1000);
	loop_free(f->loop);
	conf_done(&f->conf);
	free(f);
	return 0;
}

static inline void fire(void *arg)
{
	struct fixture *f = arg;

	f->reached = f->until(f);
	if (f->reached || now_mono_ns() > f->due_ns)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->poll, 50 * NSEC_PER_MSEC, fire, f);
}

static inline const struct account *account(const struct fixture *f, enum event e)
{
	return testpayers_tried(f->node->limit, e);
}

static void run_until(struct fixture *f, bool (*until)(struct fixture *f), const char *what)
{
	const struct account *a, *inuse;

	f->until = until;
	f->due_ns = now_mono_ns() + LIMIT_NS;
	timer_set(f->loop, &f->poll, 0, fire, f);
	loop_run(f->loop);
	timer_cancel(&f->poll);
	if (f->reached)
		return;
	a = account(f, EVENT_MEM_ALLOC);
	inuse = account(f, EVENT_MEM_INUSE);
	fail_msg("not reached: %s; allocated %llu, arrived %llu, leaked %llu, live %llu of %u; "
		 "mode %d, "
		 "load %.2f; in use: mode %d, load %.2f",
		 what, (unsigned long long)truth->bytes, (unsigned long long)arrived.alloc_bytes,
		 (unsigned long long)truth->leaked, (unsigned long long)arrived.inuse_bytes,
		 arrived.n_inuse, a ? (int)a->mode : -1,
		 a ? limit_load(&a->cost, f->node->limit->trap_ns) : 0,
		 inuse ? (int)inuse->mode : -1,
		 inuse ? limit_load(&inuse->cost, f->node->limit->trap_ns) : 0);
}

static inline bool make_dir(char *out, size_t n, const char *parent, const char *name)
{
	snprintf(out, n, "%s/%s", parent, name);
	return mkdir(out, 0755) == 0;
}

static inline void make_cgroups(struct fixture *f)
{
	struct cgroup_hierarchy h;
	struct field_error err = {0};
	char name[64], pod[64];

	snprintf(name, sizeof(name), "kubepods-overhead-%d", getpid());
	snprintf(f->uid, sizeof(f->uid), "401b6bf6-91e0-4a28-870a-%012x", (unsigned)getpid());
	snprintf(f->id, sizeof(f->id), "%064x", (unsigned)getpid());
	snprintf(pod, sizeof(pod), "pod%s", f->uid);
	if (geteuid() != 0 || proc_cgroup_choose("", &h, &err) < 0 ||
	    !make_dir(f->top, sizeof(f->top), h.mount, name)) {
		print_message("skipped: no cgroups can be made here\n");
		skip();
	}
	assert_true(make_dir(f->pod, sizeof(f->pod), f->top, pod));
	assert_true(make_dir(f->container, sizeof(f->container), f->pod, f->id));
}

static double overhead_percent = 1; /* limits.overheadPercent of the target */

static inline void ask(struct fixture *f, unsigned event_mask, uint64_t sample_bytes)
{
	struct plan *plan = testplan(f->uid, f->uid, f->id, true);
	struct plan_container *container = plan->pods[0].containers;

	container->event_mask = event_mask;
	container->overhead_percent = container->on_cpu_percent = overhead_percent;
	container->settings = (struct event_settings){.alloc_sample_bytes = sample_bytes,
						      .inuse_sample_bytes = sample_bytes,
						      .max_stall_us = 2000};
	plan->pods[0].arm_event_mask = event_mask;
	plan->pods[0].arm_settings = container->settings;
	proc_containers_apply(f->node->containers, plan, now_boot_ns());
	kernel_sync(f->node->kernel);
}

static void begin(struct fixture *f, void (*body)(void), unsigned event_mask, uint64_t sample_bytes)
{
	struct node_config c = {.conf = &f->conf, .direct = take};
	struct field_error err = {0};

	make_cgroups(f);
	f->pid = start(f->container, body);
	if (node_new(f->loop, &c, &f->node, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	ask(f, event_mask, sample_bytes);
}

static inline bool is_steady(const struct fixture *f, enum event e)
{
	const struct account *a = account(f, e);

	return a && a->mode == LIMIT_STEADY;
}

/* ---- estimates: the windows that have ended, and what the process allocated in them ---- */

#define SETTLE_SPANS 3
#define LOOK_SPANS   (getenv("LONG") ? 14u : 6u)

static inline unsigned spans_ended(void)
{
	return (unsigned)counter_get(counter("podflame_probes_spans_total", NULL, NULL));
}

__attribute__((unused)) static unsigned spans_due; /* not all tests that include this use it */
