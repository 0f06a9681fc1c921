/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory events on a node, without an API server: processes that allocate little, much and all the time, what is
 * decided about them and what of it arrives.
 */
#include "lib/base/testprogram.h"
#include "node/alloc/alloc.h"
#include "node/follow/internal.h"
#include "node/internal.h"
#include "node/limit/internal.h"
#include "node/plan/testplan.h"
#include "node/slow_file_test.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
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

/* ---- processes: what they do is written to memory that the test sees ---- */

struct truth {
	uint64_t bytes, leaked;
	uint64_t go, slow_ns; /* bursts() */
};
#define SLOW_NS 500 /* an allocation that is probed; others take a tenth */
static volatile struct truth *truth;

static void *volatile kept[4096];

__attribute__((noinline, noclone)) static void allocate(size_t n)
{
	void *volatile p = malloc(n); /* not left out as useless */

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

#define CALM_NS (20 * NSEC_PER_MSEC) /* of CPU: in a trial's 10 ms are the traps of one or two */

static void calm(void)
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

#define OFTEN_NS 6000 /* much more than a trap: of its time while attached they are a fifth */

static void often(void)
{
	for (;;) {
		uint64_t until_ns;

		allocate(256);
		until_ns = now_mono_ns() + OFTEN_NS;
		while (now_mono_ns() < until_ns)
			;
	}
}

static void storm(void)
{
	for (;;)
		allocate(64);
}

/* Little, until it is told: then it notes how long each thousand of allocations took. */
static void bursts(void)
{
	while (!truth->go) {
		allocate(64);
		usleep(20000);
	}
	for (;;) {
		uint64_t from = now_mono_ns(), ns;

		for (unsigned i = 0; i < 1000; i++)
			allocate(64);
		ns = now_mono_ns() - from;
		if (ns > 1000 * SLOW_NS)
			truth->slow_ns += ns;
	}
}

/* Hardly anything but switches. */
static void naps(void)
{
	for (;;)
		usleep(1);
}

#define EARLY	    64
#define LATE	    100
#define BLOCK_BYTES 4096

/* Has memory from before anybody asks. go: 1 for more of it, 2 frees the early and half of the late. */
static void lives_before(void)
{
	static void *volatile early[EARLY], *volatile late[LATE];

	for (unsigned i = 0; i < EARLY; i++)
		early[i] = malloc(BLOCK_BYTES);
	for (uint64_t done = 0;;) {
		for (volatile int k = 0; k < 1000000; k++)
			;
		usleep(1000);
		if (truth->go == done)
			continue;
		for (unsigned i = 0; done == 0 && i < LATE; i++)
			late[i] = malloc(BLOCK_BYTES);
		for (unsigned i = 0; done == 1 && i < EARLY; i++)
			free(early[i]);
		for (unsigned i = 0; done == 1 && i < LATE / 2; i++)
			free(late[i]);
		done++;
	}
}

static struct slow_file slow;

/* Its copy of the C library is on a file system that may stop to answer. */
static void often_and_slow(void)
{
	int fd = open(slow.path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 ||
	    mmap(NULL, slow.size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(4);
	often();
}

static void sleeps(void)
{
	for (;;)
		pause();
}

/* Forks, and the child does not exec: nothing tells of it but that it is there. */
static void forks(void)
{
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		calm();
	}
	sleeps();
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
	uint64_t alloc_bytes, inuse_bytes, on_cpu_us;
	uint32_t ppm;
	double variance;
	unsigned n_inuse;
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(const struct batch *b, const struct profile *p)
{
	uint64_t sum = 0;

	(void)b;
	if (!str_equal(p->app_service, "pf-alloc"))
		return;
	for (size_t i = 0; i < p->n_samples; i++)
		sum += (uint64_t)p->samples[i].value;
	if (p->event == EVENT_ON_CPU)
		arrived.on_cpu_us += sum;
	if (p->event == EVENT_MEM_ALLOC) {
		arrived.alloc_bytes += sum;
		arrived.ppm = p->estimate_ppm;
		arrived.variance += (double)p->estimate_error * (double)p->estimate_error;
	} else if (p->event == EVENT_MEM_INUSE) {
		arrived.inuse_bytes = sum;
		arrived.n_inuse++;
	}
}

/* The hub's place; a worker's thread. */
static int take(const void *body, size_t n, void *arg)
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
	char uid[40], id[CONTAINER_ID_BYTES]; /* of nobody else here */
	struct timer poll;
	bool (*until)(struct fixture *f);
	uint64_t due_ns;
	bool reached;
	pid_t pid, other;
	struct rlimit files; /* as it was; 0: it was left alone */
};

static int setup(void **state)
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
	arrived.variance = 0;
	arrived.ppm = arrived.n_inuse = 0;
	*truth = (struct truth){0};
	*state = f;
	return 0;
}

static int teardown(void **state)
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

static void fire(void *arg)
{
	struct fixture *f = arg;

	f->reached = f->until(f);
	if (f->reached || now_mono_ns() > f->due_ns)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->poll, 50 * NSEC_PER_MSEC, fire, f);
}

static const struct account *account(const struct fixture *f, enum event e)
{
	const struct payer *p = f->node->limit->payers;

	return p && p->of[e].tried ? &p->of[e] : NULL;
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

static bool make_dir(char *out, size_t n, const char *parent, const char *name)
{
	snprintf(out, n, "%s/%s", parent, name);
	return mkdir(out, 0755) == 0;
}

static void make_cgroups(struct fixture *f)
{
	struct cgroup_hierarchy h;
	struct field_error err = {0};
	char name[64], pod[64];

	snprintf(name, sizeof(name), "kubepods-overhead-%d", getpid());
	snprintf(f->uid, sizeof(f->uid), "401b6bf6-91e0-4a28-870a-%012x", (unsigned)getpid());
	snprintf(f->id, sizeof(f->id), "%064x", (unsigned)getpid());
	snprintf(pod, sizeof(pod), "pod%s", f->uid);
	if (geteuid() != 0 || cgroup_choose("", &h, &err) < 0 ||
	    !make_dir(f->top, sizeof(f->top), h.mount, name)) {
		print_message("skipped: no cgroups can be made here\n");
		skip();
	}
	assert_true(make_dir(f->pod, sizeof(f->pod), f->top, pod));
	assert_true(make_dir(f->container, sizeof(f->container), f->pod, f->id));
}

static void ask(struct fixture *f, unsigned event_mask, uint64_t sample_bytes)
{
	struct plan *plan = testplan(f->uid, f->uid, f->id, true);
	struct plan_container *container = plan->pods[0].containers;

	container->event_mask = event_mask;
	container->overhead_percent = 1;
	container->settings = (struct event_settings){.alloc_sample_bytes = sample_bytes,
						      .inuse_sample_bytes = sample_bytes,
						      .max_stall_us = 2000};
	plan->pods[0].arm_event_mask = event_mask;
	plan->pods[0].arm_settings = container->settings;
	procs_apply(f->node->procs, plan, now_boot_ns());
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

static bool is_steady(const struct fixture *f, enum event e)
{
	const struct account *a = account(f, e);

	return a && a->mode == LIMIT_STEADY;
}

/* ---- tests ---- */

static bool both_seen(struct fixture *f)
{
	return is_steady(f, EVENT_MEM_ALLOC) && is_steady(f, EVENT_MEM_INUSE) &&
	       arrived.alloc_bytes >= 20000 && arrived.inuse_bytes >= 8192;
}

static void little_is_seen_all_the_time(void **state)
{
	struct fixture *f = *state;
	uint64_t bytes;

	begin(f, calm, ALLOC | INUSE, 1);
	run_until(f, both_seen, "20 kB allocated, 8 kB alive");
	assert_int_equal(f->node->follow->n_attached, 1);
	kill(f->pid, SIGSTOP);
	bytes = truth->bytes + truth->leaked;
	f->node = node_free(f->node);
	assert_true(arrived.alloc_bytes <= bytes);
	assert_true(arrived.inuse_bytes <= truth->leaked + 1000);
	assert_int_equal(arrived.ppm, 0);
	kill(f->pid, SIGCONT);
}

#define TRIAL(...) (&(struct limit_spent){.attached_ns = 10 * NSEC_PER_MSEC, __VA_ARGS__})
#define BUSY	   TRIAL(.hits = 1000, .cpu_ns = 10 * NSEC_PER_MSEC)
#define CALM	   TRIAL(.hits = 1, .cpu_ns = 10 * NSEC_PER_MSEC)

static bool is_payer(struct fixture *f)
{
	return f->node->limit->payers;
}

static enum limit_mode mode_after(struct fixture *f, const struct limit_spent *const *trials,
				  size_t n)
{
	struct payer *p = f->node->limit->payers;

	p->of[EVENT_MEM_INUSE] = (struct account){.last = p->of[EVENT_MEM_INUSE].last};
	for (size_t i = 0; i < n; i++)
		limit_spent(f->node->limit, p->cgroup_id, INUSE, trials[i]);
	return p->of[EVENT_MEM_INUSE].tried ? p->of[EVENT_MEM_INUSE].mode : LIMIT_SPANS;
}

/* A refusal lasts for ten minutes. */
static void one_busy_trial_is_no_refusal(void **state)
{
	const struct limit_spent *const busy[] = {BUSY, BUSY, BUSY}, *const calm[] = {CALM},
					*const once[] = {
						TRIAL(.hits = 60, .cpu_ns = 10 * NSEC_PER_MSEC),
						CALM, CALM};
	struct fixture *f = *state;

	begin(f, sleeps, INUSE, 524288);
	run_until(f, is_payer, "a container whose cost is asked for");
	f->node->limit->trap_ns = 2000;
	assert_int_equal(mode_after(f, calm, 1), LIMIT_STEADY);
	assert_int_equal(mode_after(f, busy, 1), LIMIT_SPANS);
	assert_int_equal(mode_after(f, busy, 2), LIMIT_SPANS);
	assert_int_equal(mode_after(f, busy, 3), LIMIT_REFUSED);
	assert_int_equal(mode_after(f, once, 1), LIMIT_SPANS);
	assert_int_equal(mode_after(f, once, 3), LIMIT_STEADY);
}

static bool is_decided(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && (a->mode == LIMIT_REFUSED || (a->mode == LIMIT_SPANS && a->spans.n > 2));
}

static bool is_detached(struct fixture *f)
{
	return !f->node->follow->n_attached && !f->node->follow->n_attaching;
}

static void a_storm_is_refused_or_estimated(void **state)
{
	struct fixture *f = *state;
	const struct account *a;

	begin(f, storm, ALLOC | INUSE, 524288);
	run_until(f, is_decided, "a decision");
	a = account(f, EVENT_MEM_ALLOC);
	print_message(
		"a storm: mode %d, load %.3f of %.0f hits in %.1f ms, span %.1f ms of %.1f ms\n",
		a->mode, limit_load(&a->cost, f->node->limit->trap_ns), a->cost.hits,
		a->cost.attached_ns / 1e6, (double)a->span.span_ns / 1e6,
		(double)a->span.wait_ns / 1e6);
	assert_int_equal(account(f, EVENT_MEM_INUSE)->mode, LIMIT_REFUSED);
	run_until(f, is_detached, "no probes");
}

static bool is_attached(struct fixture *f)
{
	return is_steady(f, EVENT_MEM_ALLOC) && f->node->follow->n_attached == 1;
}

static uint64_t stalls(void)
{
	return counter_get(counter("podflame_memory_stalls_total", NULL, NULL));
}

static uint64_t stalls_before;

static bool is_noticed(struct fixture *f)
{
	return stalls() > stalls_before && is_detached(f);
}

/* It is attached as long as it lives, for it does little: that is not what it pays for when a storm begins. */
static void a_sudden_storm_is_noticed(void **state)
{
	struct fixture *f = *state;

	begin(f, bursts, ALLOC, 524288);
	stalls_before = stalls();
	run_until(f, is_attached, "probes");
	truth->go = 1;
	run_until(f, is_noticed, "a storm that is noticed");
	print_message("slow for %.1f ms\n", (double)truth->slow_ns / 1e6);
	assert_false(is_steady(f, EVENT_MEM_ALLOC));
}

/* ---- estimates: windows that ended, and what the process knows that it allocated until then ---- */

#define SETTLE_SPANS 3
#define LOOK_SPANS   (getenv("LONG") ? 14u : 6u)

static unsigned spans_ended(void)
{
	return (unsigned)counter_get(counter("podflame_memory_spans_total", NULL, NULL));
}

static unsigned spans_due;

static bool spans_seen(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && a->mode == LIMIT_SPANS && spans_ended() >= spans_due && arrived.ppm;
}

struct seen {
	double told, truth, variance;
};

static struct seen seen_now(void)
{
	return (struct seen){(double)arrived.alloc_bytes, (double)truth->bytes, arrived.variance};
}

struct looked {
	double told, really, error;
};

static struct looked look(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);
	struct seen from = seen_now(), to;
	struct looked l;

	spans_due = spans_ended() + LOOK_SPANS;
	run_until(f, spans_seen, "more of it");
	to = seen_now();
	l = (struct looked){to.told - from.told, to.truth - from.truth,
			    sqrt(to.variance - from.variance)};
	print_message("often: load %.2f, span %.1f ms of %.0f ms: told %.2f of the truth, error "
		      "%.2f\n",
		      limit_load(&a->cost, f->node->limit->trap_ns), (double)a->span.span_ns / 1e6,
		      (double)a->span.wait_ns / 1e6, l.told / l.really, l.error / l.told);
	assert_true(l.error < l.told);
	return l;
}

static void begin_often(struct fixture *f)
{
	begin(f, often, ALLOC, 16384);
	spans_due = spans_ended() + SETTLE_SPANS;
	run_until(f, spans_seen, "an estimate");
}

static void much_is_estimated(void **state)
{
	struct fixture *f = *state;
	struct looked l;

	begin_often(f);
	l = look(f);
	/* One look of few spans: seen on a busy machine, 0.65 to 1.10. */
	assert_true(l.told > 0.4 * l.really && l.told < 2.5 * l.really);
}

static void what_is_told_is_as_sure_as_it_says(void **state)
{
	struct fixture *f = *state;
	unsigned n_within = 0;

	if (!getenv("LONG")) {
		print_message("skipped: takes ten minutes: LONG=1\n");
		skip();
	}
	begin_often(f);
	for (unsigned i = 0; i < 20; i++) {
		struct looked l = look(f);

		n_within += fabs(l.told - l.really) <= 2 * l.error;
	}
	print_message("within two errors: %u of 20\n", n_within);
	assert_true(n_within >= 16);
}

static const struct tracked *tracked_of(const struct fixture *f, pid_t pid)
{
	struct tracked *t, *next;

	HASH_ITER (hh, f->node->follow->tracked, t, next)
		if ((pid_t)t->id.tgid == pid)
			return t;
	return NULL;
}

/* ---- off-cpu: limits end with who they were for. No loop runs: what is known of cgroups is what is said here ---- */

#define OFF	  (1u << EVENT_OFF_CPU)
#define CGROUP	  (1ull << 40) /* and those after it: of nobody here */
#define KEPT	  1000
#define N_THINNED 5000

static void cgroup(struct fixture *f, uint64_t id, const char *container_id, const char *inner,
		   bool removed)
{
	_cleanup_free_ char *path = xasprintf("/kubepods/pod%s/%s%s", f->uid, container_id, inner);

	procs_cgroup(f->node->procs, id, CGROUP, path, removed, now_boot_ns());
}

static void plan_off(struct fixture *f, const char *container_id, unsigned event_mask)
{
	struct plan *plan = testplan(f->uid, f->uid, container_id, true);

	plan->pods[0].containers[0].event_mask = event_mask;
	procs_apply(f->node->procs, plan, now_boot_ns());
}

static void thin(struct fixture *f, uint64_t id, const char *container_id)
{
	struct payer *p = limit_payer_get(f->node->limit, id);

	assert_non_null(p);
	p->off = OFF_SHARES(KEPT, KEPT);
	procs_keep_off(f->node->procs, container_id, KEPT, KEPT);
}

static uint32_t kept_of(struct fixture *f, uint64_t id)
{
	bool changed;
	size_t n;
	const struct procs_filter *filter =
		procs_filter(f->node->procs, now_boot_ns(), &n, &changed);
	uint64_t until_ns;
	struct owner *o = procs_owner(f->node->procs, id, &until_ns);
	uint32_t keep;

	assert_non_null(o);
	keep = o->off_keep;
	owner_unref(o);
	for (size_t i = 0; i < n; i++)
		if (filter[i].cgroup_id == id)
			assert_true(filter[i].off_keep == keep);
	return keep;
}

/* Payers are looked at; what follows of their CPU time is not waited for. */
static void look_at_owners(struct fixture *f)
{
	struct limit *o = f->node->limit;

	o->round_ns = 0;
	limit_usage(o, NULL, 0, 0);
	assert_true(o->reading == (o->payers != NULL));
}

static void who_was_thinned_begins_anew(void **state)
{
	struct fixture *f = *state;

	begin(f, sleeps, OFF, 0);
	cgroup(f, CGROUP + 1, f->id, "", false);
	thin(f, CGROUP + 1, f->id);
	assert_int_equal(kept_of(f, CGROUP + 1), KEPT);
	procs_apply(f->node->procs, testplan("other", "other", "other", true), now_boot_ns());
	look_at_owners(f);
	assert_null(f->node->limit->payers);
	plan_off(f, f->id, OFF);
	assert_true(kept_of(f, CGROUP + 1) == UINT32_MAX);
}

static void who_ends_takes_its_limit_along(void **state)
{
	struct fixture *f = *state;

	begin(f, sleeps, OFF, 0);
	cgroup(f, CGROUP + 1, f->id, "", false);
	cgroup(f, CGROUP + 2, f->id, "/inner", false);
	assert_non_null(limit_payer_get(f->node->limit, CGROUP + 1));
	thin(f, CGROUP + 2, f->id);
	assert_int_equal(kept_of(f, CGROUP + 1), KEPT);
	cgroup(f, CGROUP + 2, f->id, "/inner", true);
	look_at_owners(f);
	assert_int_equal(HASH_COUNT(f->node->limit->payers), 1);
	assert_true(kept_of(f, CGROUP + 1) == UINT32_MAX);
}

static void limits_of_who_is_gone_leave_room(void **state)
{
	struct fixture *f = *state;
	char id[CONTAINER_ID_BYTES];

	begin(f, sleeps, OFF, 0);
	for (uint64_t i = 1; i <= N_THINNED; i++) {
		snprintf(id, sizeof(id), "%063llx0", (unsigned long long)(CGROUP + i));
		plan_off(f, id, OFF);
		cgroup(f, CGROUP + i, id, "", false);
		thin(f, CGROUP + i, id);
		assert_int_equal(kept_of(f, CGROUP + i), KEPT);
		cgroup(f, CGROUP + i, id, "", true);
		look_at_owners(f);
	}
}

static uint64_t dropped(void)
{
	return counter_get(counter("podflame_container_limits_dropped_total", NULL, NULL));
}

#define MAX_PAYERS 8192

static void cgroups_beyond_the_limit_are_counted(void **state)
{
	struct fixture *f = *state;
	struct limit *o;
	const struct payer *one;
	uint64_t before = dropped();

	begin(f, sleeps, OFF, 0);
	o = f->node->limit;
	cgroup(f, CGROUP + 1, f->id, "", false);
	cgroup(f, CGROUP + 2, f->id, "/inner", false);
	one = limit_payer_get(o, CGROUP + 1);
	assert_non_null(one);
	for (uint64_t id = CGROUP + 10; HASH_COUNT(o->payers) < MAX_PAYERS; id++) {
		struct payer *p = xcalloc(1, sizeof(*p));

		*p = (struct payer){.cgroup_id = id, .owner = owner_ref(one->owner)};
		p->off = OFF_SHARES_ALL;
		HASH_ADD(hh, o->payers, cgroup_id, sizeof(p->cgroup_id), p);
	}
	assert_null(limit_payer_get(o, CGROUP + 3)); /* nobody's */
	assert_int_equal(dropped(), before);
	assert_null(limit_payer_get(o, CGROUP + 2));
	assert_int_equal(dropped(), before + 1);
	look_at_owners(f);
	assert_non_null(limit_payer_get(o, CGROUP + 2));
	assert_int_equal(dropped(), before + 1);
}

#define MAX_CAPS 4096

static uint64_t dropped_before;

static bool has_no_room(struct fixture *f)
{
	(void)f;
	return dropped() > dropped_before;
}

static bool is_thinned(struct fixture *f)
{
	const struct payer *p = f->node->limit->payers;

	return p && p->off.keep != UINT32_MAX;
}

/* What is told of it is what is done: each of its switches is looked at. */
static void who_cannot_be_thinned_is_not_told_as_thinned(void **state)
{
	struct counter *estimated = counter("podflame_containers_estimated", NULL, NULL);
	struct fixture *f = *state;
	char id[CONTAINER_ID_BYTES];

	begin(f, naps, OFF, 0);
	for (unsigned i = 0; i < MAX_CAPS; i++) {
		snprintf(id, sizeof(id), "%063llx0", (unsigned long long)(CGROUP + i));
		assert_true(procs_keep_off(f->node->procs, id, KEPT, KEPT));
	}
	dropped_before = dropped();
	run_until(f, has_no_room, "a limit without room");
	assert_false(is_thinned(f));
	assert_int_equal(counter_get(estimated), 0);
	assert_true(procs_keep_off(f->node->procs, id, UINT32_MAX, UINT32_MAX));
	run_until(f, is_thinned, "a limit, once there is room");
}

/* ---- a pause, in which it goes on to allocate ---- */

static bool is_forgotten(struct fixture *f)
{
	return is_detached(f) && !f->node->follow->memory_asked && !account(f, EVENT_MEM_ALLOC);
}

static bool has_span(struct fixture *f)
{
	const struct account *a = account(f, EVENT_MEM_ALLOC);

	return a && a->spans.n > 0;
}

static bool is_without_spans(struct fixture *f)
{
	const struct tracked *t = tracked_of(f, f->pid);

	return t && !t->allocs.attached && !t->allocs.busy && !t->allocs.span_end.cpu_ns;
}

#define PAUSE_NS (500 * NSEC_PER_MSEC) /* of the process's CPU time */
#define TICKS_NS (50 * NSEC_PER_MSEC)  /* a process's own clock may be so late while it runs */
static uint64_t paused_ns;

static bool has_worked_in_pause(struct fixture *f)
{
	return program_cpu_ns(f->pid) >= paused_ns + PAUSE_NS;
}

static void work_in_pause(struct fixture *f)
{
	paused_ns = program_cpu_ns(f->pid);
	run_until(f, has_worked_in_pause, "work in the pause");
	paused_ns = program_cpu_ns(f->pid);
}

/*
 * All work that spans are told to stand for was done after the pause, however many of them there
 * are by now.
 */
static void assert_begins_anew(struct fixture *f)
{
	uint64_t since_ns;
	double all_ns;

	run_until(f, has_span, "a span after the pause");
	all_ns = account(f, EVENT_MEM_ALLOC)->spans.all_work_ns;
	since_ns = program_cpu_ns(f->pid) - paused_ns;
	if (all_ns > (double)(since_ns + TICKS_NS))
		fail_msg("spans stand for %.0f ms of work, and %llu ms were done since the pause",
			 all_ns / 1e6, (unsigned long long)(since_ns / NSEC_PER_MSEC));
}

static void a_pause_is_not_estimated(void **state)
{
	struct fixture *f = *state;

	begin_often(f);
	ask(f, 1u << EVENT_ON_CPU, 16384);
	run_until(f, is_forgotten, "nobody who asks");
	work_in_pause(f);
	ask(f, ALLOC, 16384);
	assert_begins_anew(f);
}

static void forget_spans(struct fixture *f)
{
	f->node->limit->payers->of[EVENT_MEM_ALLOC].spans = (struct spans){0};
}

/* As the kernel does, for want of memory or for good. */
static void what_the_kernel_refuses_is_not_estimated(void **state)
{
	struct fixture *f = *state;
	struct allocs *a;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	a = &((struct tracked *)tracked_of(f, f->pid))->allocs;
	a->refused = true;
	a->next_ns = now_mono_ns() + 3600 * NSEC_PER_SEC;
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	a->refused = false;
	a->next_ns = 0;
	assert_begins_anew(f);
}

static void what_has_no_room_is_not_estimated(void **state)
{
	struct fixture *f = *state;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	f->node->follow->n_attached += 1024; /* ATTACHED_MAX others */
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	f->node->follow->n_attached -= 1024;
	assert_begins_anew(f);
}

static void a_refusal_is_not_estimated(void **state)
{
	struct fixture *f = *state;
	struct account *a;

	begin_often(f);
	run_until(f, is_detached, "the end of a span");
	a = &f->node->limit->payers->of[EVENT_MEM_ALLOC];
	a->mode = LIMIT_REFUSED;
	a->asked = limit_asked(f->node->limit, f->node->limit->payers);
	a->retry_ns = UINT64_MAX;
	run_until(f, is_without_spans, "no spans that are to come");
	forget_spans(f);
	work_in_pause(f);
	a->retry_ns = 0;
	assert_begins_anew(f);
}

/* ---- the same of a Go program, whose own heap profile is read ---- */

#define GO_MB (1u << 20)

static const char go_program[] =
	"package main\n"
	"import (\"os\"; \"os/signal\"; \"runtime\"; \"syscall\")\n"
	"var sink []byte\n"
	"func init() { runtime.MemProfileRate = 1 }\n"
	"//go:noinline\n"
	"func allocate(n int) { for i := 0; i < n; i++ { sink = make([]byte, 1 << 20) } }\n"
	"func main() {\n"
	"	asked := make(chan os.Signal, 1)\n"
	"	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)\n"
	"	runtime.MemProfile(nil, false)\n"
	"	for s := range asked {\n"
	"		if s == syscall.SIGUSR1 { allocate(100) } else { allocate(300) }\n"
	"		os.Stdout.WriteString(\"x\")\n"
	"	}\n"
	"}\n";
static struct {
	char dir[64], source[128], path[128];
	int said[2]; /* that it has allocated */
} go;

static bool go_build(void)
{
	_cleanup_free_ char *build = NULL;

	snprintf(go.dir, sizeof(go.dir), "/tmp/overhead-go-XXXXXX");
	assert_non_null(mkdtemp(go.dir));
	snprintf(go.path, sizeof(go.path), "%s/pf-alloc", go.dir);
	snprintf(go.source, sizeof(go.source), "%s/main.go", go.dir);
	assert_int_equal(file_write_atomic(go.source, go_program, strlen(go_program), 0600), 0);
	build = xasprintf("GOFLAGS= go build -o %s %s 2>/dev/null", go.path, go.source);
	return system(build) == 0;
}

static int go_teardown(void **state)
{
	teardown(state);
	close(go.said[0]);
	close(go.said[1]);
	unlink(go.path);
	unlink(go.source);
	rmdir(go.dir);
	return 0;
}

static void runs_go(void)
{
	if (dup2(go.said[1], STDOUT_FILENO) == STDOUT_FILENO)
		execl(go.path, go.path, NULL);
}

static struct tracked *go_process(const struct fixture *f)
{
	struct tracked *t = (struct tracked *)tracked_of(f, f->pid);

	return t && t->allocs.sites && t->allocs.sites->go ? t : NULL;
}

static bool go_is_read(struct fixture *f)
{
	const struct tracked *t = go_process(f);

	return t && t->allocs.next_go_ns; /* sites are not lent */
}

static bool go_is_forgotten(struct fixture *f)
{
	return go_process(f) && is_detached(f) && !f->node->follow->memory_asked;
}

static uint64_t bytes_due;

static bool bytes_arrived(struct fixture *f)
{
	(void)f;
	return arrived.alloc_bytes >= bytes_due;
}

static void go_allocates(struct fixture *f, int how_much)
{
	char c;

	assert_int_equal(kill(f->pid, how_much), 0);
	assert_int_equal(read(go.said[0], &c, 1), 1);
}

static void go_read_now(struct fixture *f)
{
	go_process(f)->allocs.next_go_ns = 0;
	run_until(f, go_is_read, "its heap profile");
}

static void what_go_allocates_in_a_pause_is_not_told(void **state)
{
	struct fixture *f = *state;
	uint64_t before;

	assert_int_equal(pipe(go.said), 0);
	if (!go_build()) {
		print_message("skipped: no Go here\n");
		skip();
	}
	begin(f, runs_go, ALLOC, 524288);
	run_until(f, go_is_read, "its heap profile");
	go_allocates(f, SIGUSR1);
	go_read_now(f);
	bytes_due = 90 * GO_MB;
	run_until(f, bytes_arrived, "what it allocates");
	ask(f, 1u << EVENT_ON_CPU, 524288);
	run_until(f, go_is_forgotten, "nobody who asks");
	before = arrived.alloc_bytes;
	go_allocates(f, SIGUSR1);
	ask(f, ALLOC, 524288);
	go_read_now(f);
	go_allocates(f, SIGUSR2);
	go_read_now(f);
	bytes_due = before + 290 * GO_MB;
	run_until(f, bytes_arrived, "what it allocates afterwards");
	assert_true(arrived.alloc_bytes < before + 350 * GO_MB);
}

/* ---- a file that cannot be read ---- */

static bool spans_go_on(struct fixture *f)
{
	(void)f;
	return spans_ended() >= spans_due;
}

static bool is_stuck(struct fixture *f)
{
	return f->node->follow->stuck.n == 1;
}

static bool is_back(struct fixture *f)
{
	const struct tracked *t = tracked_of(f, f->pid);

	return !f->node->follow->stuck.n && t && !t->allocs.problem && spans_go_on(f);
}

/* Its process is told of, and all others go on. */
static void a_file_that_does_not_answer_holds_up_one_process(void **state)
{
	struct fixture *f = *state;
	const struct tracked *t;
	Dl_info libc;

	assert_true(dladdr((void *)malloc, &libc));
	if (slow_file_new(&slow, libc.dli_fname) < 0) {
		print_message("skipped: no FUSE here\n");
		skip();
	}
	begin(f, often_and_slow, ALLOC, 16384);
	f->other = start(f->container, often);
	spans_due = spans_ended() + 2 * SETTLE_SPANS;
	run_until(f, spans_go_on, "spans of both");
	slow.silent = true;
	run_until(f, is_stuck, "a worker that is stuck");
	t = tracked_of(f, f->pid);
	assert_non_null(strstr(t->allocs.problem, "file system"));
	spans_due = spans_ended() + SETTLE_SPANS;
	run_until(f, spans_go_on, "spans of the other");
	assert_true(is_stuck(f));
	slow.silent = false;
	spans_due = spans_ended() + SETTLE_SPANS;
	run_until(f, is_back, "spans of both again");
	f->node = node_free(f->node);
	kill(f->pid, SIGKILL);
	slow_file_free(&slow);
}

/* ---- who is known already when somebody asks for its memory ---- */

static bool on_cpu_seen(struct fixture *f)
{
	(void)f;
	return arrived.on_cpu_us > 0;
}

static bool is_attached_for_both(struct fixture *f)
{
	const struct tracked *t = tracked_of(f, f->pid);

	return t && is_steady(f, EVENT_MEM_ALLOC) && is_steady(f, EVENT_MEM_INUSE) &&
	       t->allocs.attached && t->allocs.attached_mask == (ALLOC | INUSE);
}

/* Exactly so much, of all that was allocated: a snapshot may come amid its allocations, or its frees. */
static bool lives(uint64_t bytes)
{
	bool so;

	pthread_mutex_lock(&arrived.lock);
	so = arrived.inuse_bytes == bytes && arrived.alloc_bytes == LATE * BLOCK_BYTES;
	pthread_mutex_unlock(&arrived.lock);
	return so;
}

static bool late_lives(struct fixture *f)
{
	(void)f;
	return lives(LATE * BLOCK_BYTES);
}

static bool half_of_it_lives(struct fixture *f)
{
	(void)f;
	return lives(LATE / 2 * BLOCK_BYTES);
}

/* What it has from before is not known: neither as memory in use nor as some that is freed. */
static void memory_is_asked_for_later(void **state)
{
	struct fixture *f = *state;

	begin(f, lives_before, 1u << EVENT_ON_CPU, 1);
	run_until(f, on_cpu_seen, "samples on CPU");
	assert_null(account(f, EVENT_MEM_INUSE));
	ask(f, 1u << EVENT_ON_CPU | ALLOC | INUSE, 1);
	run_until(f, is_attached_for_both, "probes of a process that is known");
	truth->go = 1;
	run_until(f, late_lives, "memory that lives");
	truth->go = 2;
	run_until(f, half_of_it_lives, "half of it, as the other is freed");
}

static bool child_seen(struct fixture *f)
{
	(void)f;
	return arrived.alloc_bytes > 0;
}

/* ---- more processes than may have probes at once ---- */

static bool no_room(struct fixture *f)
{
	(void)f;
	return counter_get(counter("podflame_memory_attach_total", "result", "too_many")) > 0;
}

static void who_has_no_room_waits_for_it(void **state)
{
	struct fixture *f = *state;

	begin(f, calm, ALLOC, 1);
	f->node->follow->n_attached += 1024; /* ATTACHED_MAX others */
	run_until(f, no_room, "a process without room");
	assert_int_equal(arrived.alloc_bytes, 0);
	f->node->follow->n_attached -= 1024;
	run_until(f, child_seen, "what it allocates, once there is room");
}

static uint64_t unread_before;

static uint64_t unread(void)
{
	return counter_get(counter("podflame_mappings_dropped_total", "reason", "stuck"));
}

static bool is_unread(struct fixture *f)
{
	(void)f;
	return unread() > unread_before;
}

/* No sample of it asks for its mappings, as it is not probed without. */
static void who_could_not_be_read_is_read_again(void **state)
{
	struct fixture *f = *state;

	begin(f, calm, ALLOC, 1);
	unread_before = unread();
	atomic_store(&f->node->work->blocked[0], hash_str(f->uid)); /* as a file does not answer */
	run_until(f, is_unread, "a process that is not read");
	assert_null(tracked_of(f, f->pid));
	atomic_store(&f->node->work->blocked[0], 0);
	run_until(f, child_seen, "what it allocates, once it can be read");
}

static bool cannot_look(struct fixture *f)
{
	const struct tracked *t = tracked_of(f, f->pid);

	return t && t->allocs.problem && strstr(t->allocs.problem, strerror(EMFILE));
}

/* Its mappings are known since it was sampled: nothing else asks for them again. */
static void who_could_not_be_looked_at_is_looked_at_again(void **state)
{
	struct fixture *f = *state;
	struct rlimit none;

	begin(f, calm, 1u << EVENT_ON_CPU, 1);
	run_until(f, on_cpu_seen, "samples on CPU");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &f->files), 0);
	none = (struct rlimit){3, f->files.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ask(f, 1u << EVENT_ON_CPU | ALLOC, 1);
	run_until(f, cannot_look, "a look without descriptors");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &f->files), 0);
	run_until(f, child_seen, "what it allocates, once there are some");
}

#define MAX_TRACKED 32768

static void processes_beyond_the_limit_are_counted(void **state)
{
	struct counter *out = counter("podflame_processes_dropped_total", "reason", "follow_full");
	struct fixture *f = *state;
	struct follow *follow;
	struct mappings *m;
	uint64_t before = counter_get(out), start_ns;

	begin(f, calm, 1u << EVENT_ON_CPU, 1);
	run_until(f, on_cpu_seen, "samples on CPU");
	follow = f->node->follow;
	for (uint32_t tgid = 1u << 30; HASH_COUNT(follow->tracked) < MAX_TRACKED; tgid++) {
		struct tracked *t = xcalloc(1, sizeof(*t));

		t->follow = follow;
		t->id = (struct process_id){1, tgid}; /* of nobody */
		HASH_ADD(hh, follow->tracked, id, sizeof(t->id), t);
	}
	assert_int_equal(counter_get(out), before);
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start_ns), 0);
	assert_int_equal(mappings_read((struct process_id){start_ns, getpid()}, 1, &m), 0);
	follow_process(follow, m, 0);
	mappings_unref(m);
	assert_int_equal(counter_get(out), before + 1);
	assert_int_equal(HASH_COUNT(follow->tracked), MAX_TRACKED);
	assert_non_null(tracked_of(f, getpid()));
	assert_null(tracked_of(f, f->pid)); /* the first */
}

static void a_fork_is_found(void **state)
{
	struct fixture *f = *state;

	begin(f, forks, ALLOC, 1);
	run_until(f, child_seen, "what the child allocates");
}

/* Of which tests: a pattern such as "a_file*"; all. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(little_is_seen_all_the_time, setup, teardown),
		cmocka_unit_test_setup_teardown(one_busy_trial_is_no_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(a_storm_is_refused_or_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(a_sudden_storm_is_noticed, setup, teardown),
		cmocka_unit_test_setup_teardown(much_is_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_told_is_as_sure_as_it_says, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_was_thinned_begins_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(who_ends_takes_its_limit_along, setup, teardown),
		cmocka_unit_test_setup_teardown(limits_of_who_is_gone_leave_room, setup, teardown),
		cmocka_unit_test_setup_teardown(cgroups_beyond_the_limit_are_counted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_cannot_be_thinned_is_not_told_as_thinned, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_pause_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_the_kernel_refuses_is_not_estimated, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_has_no_room_is_not_estimated, setup, teardown),
		cmocka_unit_test_setup_teardown(what_go_allocates_in_a_pause_is_not_told, setup,
						go_teardown),
		cmocka_unit_test_setup_teardown(a_file_that_does_not_answer_holds_up_one_process,
						setup, teardown),
		cmocka_unit_test_setup_teardown(who_has_no_room_waits_for_it, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_asked_for_later, setup, teardown),
		cmocka_unit_test_setup_teardown(who_could_not_be_read_is_read_again, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_could_not_be_looked_at_is_looked_at_again,
						setup, teardown),
		cmocka_unit_test_setup_teardown(processes_beyond_the_limit_are_counted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_fork_is_found, setup, teardown),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(truth != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
