/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers under stress: a node without an API server, made containers whose processes say whose they are, and nothing
 * that arrives at the hub's side may say otherwise. The numbers in the names are those of docs/containers.md.
 */
#include "node/kernel_private.h"
#include "node/parse/testnames.h"
#include "node/testtenants.h"

#include <dirent.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lib/otlp/otlp.h"

#define HZ	 997
#define PLAN_NS	 (300 * NSEC_PER_MSEC) /* that late the API server names what has started */
#define LIMIT_NS (600 * NSEC_PER_SEC)
#define ON_CPU	 (1u << EVENT_ON_CPU)
#define ALL_FOUR ((1u << _EVENT_MAX) - 1)

/* ---- what arrives, and whether it is right ---- */

/* Of one container. */
struct tally {
	/* before */
	unsigned event_mask; /* 0: nobody asked for it */
	unsigned pod;
	unsigned guest; /* K of a process that is here by turns */
	char program;	/* 't', 'a' */
	/* after */
	uint64_t n[_EVENT_MAX], value[_EVENT_MAX], named[_EVENT_MAX];
	uint64_t unnamed_yet,
		starts; /* samples before the API server had named it; different ids */
	char last_id[CONTAINER_ID_BYTES];
};
static struct {
	pthread_mutex_t lock;
	struct tally of[TENANTS];
	unsigned run;
	uint64_t n, lost, n_profiles, n_wrong;
	char wrong[400];
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 1, 2))) static void is_wrong(const char *form, ...)
{
	va_list args;

	va_start(args, form);
	if (!arrived.n_wrong++)
		vsnprintf(arrived.wrong, sizeof(arrived.wrong), form, args);
	va_end(args);
}

/* "tenant_07" -> 7, 't'; -1: it is no function of a tenant's */
static int whose_function(const char *name, char *ret_program)
{
	unsigned k;

	if (!name || (sscanf(name, "tenant_%2u", &k) != 1 && sscanf(name, "alien_%2u", &k) != 1))
		return -1;
	*ret_program = name[0];
	return (int)k;
}

static void check_stack(const struct batch *b, const struct profile *p,
			const struct profile_sample *s, unsigned k)
{
	struct tally *t = &arrived.of[k];
	char program = 0;
	int who;

	for (size_t i = 0; s->stack != STACK_NONE && i < b->stacks[s->stack].n; i++) {
		const char *name = b->stacks[s->stack].frames[i]->name;

		who = whose_function(name, &program);
		if (who < 0)
			continue;
		if ((unsigned)who != k || program != t->program)
			is_wrong("%s: a sample of container %u is in %s of %s, %lu times",
				 event_info(p->event)->name, k, name, p->app_service,
				 (unsigned long)s->n_samples);
		t->named[p->event] += s->n_samples;
		return;
	}
}

static int whose_profile(const struct profile *p, const char *id)
{
	unsigned start, run, k;

	if (!id || sscanf(id, "%56x%6x%2x", &run, &start, &k) != 3 || k >= TENANTS ||
	    run != arrived.run) {
		is_wrong("a profile of %s has the container id '%s'", p->app_service, id ? id : "");
		return -1;
	}
	return (int)k;
}

static void check_tags(const struct profile *p, unsigned k)
{
	const struct tally *t = &arrived.of[k];
	const char *pod = profile_tag_get(p, "pod");
	unsigned number = TENANTS;
	char program = 0;

	if (!(t->event_mask & 1u << p->event))
		is_wrong("container %u was not asked for %s", k, event_info(p->event)->name);
	if (!pod || sscanf(pod, "pod-%2u", &number) != 1 || number != t->pod)
		is_wrong("container %u is said to be of pod '%s'", k, pod ? pod : "");
	if (streq(p->app_service, "Throttled"))
		return;
	if (sscanf(p->app_service, "%c-%2u", &program, &number) != 2 || program != t->program ||
	    (number != k && number != t->guest))
		is_wrong("%s: container %u has samples of %s", event_info(p->event)->name, k,
			 p->app_service);
}

static void check_profile(const struct batch *b, const struct profile *p)
{
	const char *id = profile_tag_get(p, "container_id");
	struct tally *t;
	int k;

	for (size_t i = 0; i < p->n_losses; i++)
		arrived.lost += p->losses[i].n_samples;
	if (!p->n_samples)
		return;
	k = whose_profile(p, id);
	if (k < 0)
		return;
	t = &arrived.of[k];
	arrived.n_profiles++;
	check_tags(p, (unsigned)k);
	if (!streq(t->last_id, id)) {
		snprintf(t->last_id, sizeof(t->last_id), "%s", id);
		t->starts++;
	}
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = &p->samples[i];

		arrived.n += s->n_samples;
		t->n[p->event] += s->n_samples;
		t->value[p->event] += (uint64_t)s->value;
		t->unnamed_yet += profile_tag_get(p, "container") ? 0 : s->n_samples;
		check_stack(b, p, s, (unsigned)k);
	}
}

/* The hub's place; a worker's thread. */
static int take(const void *body, size_t n, void *arg)
{
	struct field_error err;
	struct batch *b;

	(void)arg;
	assert_int_equal(otlp_decode(body, n, &b, &err), 0);
	pthread_mutex_lock(&arrived.lock);
	for (size_t i = 0; i < b->n_profiles; i++)
		check_profile(b, b->profiles[i]);
	pthread_mutex_unlock(&arrived.lock);
	batch_free(b);
	return 0;
}

/* Samples that say whose they are by themselves. */
static uint64_t n_of(unsigned k, enum event e)
{
	uint64_t n;

	pthread_mutex_lock(&arrived.lock);
	n = names_missing() ? arrived.of[k].n[e] : arrived.of[k].named[e];
	pthread_mutex_unlock(&arrived.lock);
	return n;
}

/* ---- counters: what a test adds to them ---- */

struct sums {
	uint64_t taken, delivered, kernel_dropped, folded, excluded, lost;
};
static struct sums sums_before;

static void add_counter(const char *name, const char *label, const char *reason, uint64_t value,
			void *arg)
{
	struct sums *s = arg;

	(void)label;
	if (streq(name, "podflame_samples_dropped_total"))
		s->kernel_dropped += value;
	else if (streq(name, "podflame_samples_excluded_total"))
		s->excluded += value;
	else if (streq(name, "podflame_samples_folded_total"))
		s->folded += value;
	else if (!streq(name, "podflame_samples_total"))
		return;
	else if (streq(reason, "ticks"))
		s->taken += value;
	else if (streq(reason, "filtered") || streq(reason, "thinned"))
		s->taken -= value;
	else if (streq(reason, "delivered"))
		s->delivered += value;
}

static struct sums sums_now(void)
{
	struct sums s = {0};

	counter_each(add_counter, &s);
	return s;
}

static uint64_t excluded(const char *reason)
{
	return counter_get(counter("podflame_samples_excluded_total", "reason", reason));
}

/* ---- the node under test ---- */

struct fixture {
	struct tenants t;
	struct loop *loop;
	struct config conf;
	struct node *node;
	char dir[TESTDIR_BYTES];
	const struct tenant_wish *wishes;
	size_t n_wishes;
	unsigned starts[TENANTS]; /* as the last plan had them */
	struct timer plan, poll;
	bool (*until)(struct fixture *f);
	uint64_t due_ns;
	bool reached;
};

static int set_up_in(void **state, const char *force)
{
	struct fixture *f = xcalloc(1, sizeof(*f));
	const char *why = tenants_open(&f->t, force);

	*state = f;
	if (why) {
		print_message("skip: %s: %s\n", force, why);
		tenants_close(&f->t);
		free(f);
		*state = NULL;
		return 0;
	}
	memset(arrived.of, 0, sizeof(arrived.of));
	arrived.n = arrived.lost = arrived.n_profiles = arrived.n_wrong = 0;
	arrived.run = f->t.run;
	sums_before = sums_now();
	conf_init(&f->conf);
	assert_int_equal(testdir_make(f->dir), 0);
	free(f->conf.data_dir);
	f->conf.data_dir = xstrdup(f->dir);
	free(f->conf.node_name);
	f->conf.node_name = xstrdup("node-a");
	free(f->conf.cgroup_hierarchy);
	f->conf.cgroup_hierarchy = xstrdup(force);
	f->conf.window_ns = NSEC_PER_SEC;
	f->conf.max_sample_hz = HZ;
	assert_int_equal(loop_new(&f->loop), 0);
	return 0;
}

static int set_up(void **state)
{
	return set_up_in(state, "");
}

static int set_up_v2(void **state)
{
	return set_up_in(state, "v2");
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	if (!f)
		return 0;
	tenants_close(&f->t);
	timer_cancel(&f->plan);
	node_free(f->node);
	loop_free(f->loop);
	conf_done(&f->conf);
	testdir_remove(f->dir);
	free(f);
	return 0;
}

static void plan_again(void *arg)
{
	struct fixture *f = arg;

	timer_set(f->loop, &f->plan, PLAN_NS, plan_again, f);
	for (unsigned k = 0; k < TENANTS; k++)
		f->starts[k] = __atomic_load_n(&f->t.shared->starts[k], __ATOMIC_ACQUIRE);
	procs_apply(f->node->procs, tenants_plan(&f->t, f->wishes, f->n_wishes, f->starts, HZ),
		    now_boot_ns());
	kernel_sync(f->node->kernel);
}

static void start_node(struct fixture *f, const struct tenant_wish *wishes, size_t n)
{
	struct node_config c = {.conf = &f->conf, .direct = take};
	struct field_error err = {0};

	for (unsigned k = 0; k < TENANTS; k++)
		arrived.of[k].guest = TENANTS;
	for (size_t i = 0; i < n; i++) {
		struct tally *t = &arrived.of[wishes[i].k];

		t->event_mask = wishes[i].event_mask ? wishes[i].event_mask : ON_CPU;
		t->pod = wishes[i].pod;
		t->program = t->program ? t->program : 't';
	}
	f->wishes = wishes;
	f->n_wishes = n;
	if (node_new(f->loop, &c, &f->node, &err) < 0)
		fail_msg("%s: %s", err.path, err.reason);
	assert_int_equal(node_start(f->node, "node-uid"), 0);
	plan_again(f);
}

static void poll_fire(void *arg)
{
	struct fixture *f = arg;

	f->reached = f->until(f);
	if (f->reached || now_mono_ns() > f->due_ns || arrived.n_wrong)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->poll, 20 * NSEC_PER_MSEC, poll_fire, f);
}

static void run_until(struct fixture *f, bool (*until)(struct fixture *f), const char *what)
{
	f->until = until;
	f->due_ns = now_mono_ns() + LIMIT_NS;
	timer_set(f->loop, &f->poll, 0, poll_fire, f);
	loop_run(f->loop);
	timer_cancel(&f->poll);
	if (arrived.n_wrong)
		fail_msg("%lu wrong, the first: %s", arrived.n_wrong, arrived.wrong);
	if (!f->reached)
		fail_msg("not reached: %s", what);
}

/* No sample is anybody else's, and none is gone without a reason. */
static void end_and_check(struct fixture *f, bool on_cpu_alone)
{
	struct sums *a = &sums_before, b;

	tenants_clear(&f->t);
	timer_cancel(&f->plan);
	f->node = node_free(f->node);
	b = sums_now();
	if (arrived.n_wrong)
		fail_msg("%lu wrong, the first: %s", arrived.n_wrong, arrived.wrong);
	print_message("  %lu samples: %lu folded, %lu arrived, %lu lost, %lu excluded, %lu dropped "
		      "by the kernel\n",
		      b.taken, b.folded - a->folded, arrived.n, arrived.lost,
		      b.excluded - a->excluded, b.kernel_dropped - a->kernel_dropped);
	assert_int_equal(b.folded - a->folded, arrived.n);
	if (!on_cpu_alone)
		return;
	assert_int_equal(b.taken, b.delivered + b.kernel_dropped - a->kernel_dropped);
	assert_int_equal(b.delivered, b.folded - a->folded + b.excluded - a->excluded);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define NEEDS(f)                                                                                   \
	do {                                                                                       \
		if (!(f))                                                                          \
			skip();                                                                    \
	} while (0)

/* ---- storms ---- */

static bool is_long(void)
{
	return getenv("LONG") != NULL;
}

static void crash_loop(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "10", .late_ms = k % 2 ? 0 : 2};

	for (;;)
		tenant_live(t, k, k, &w);
}

/* 1 Hz */
static void slow_crash_loop(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "30"};

	for (;;) {
		tenant_live(t, k, k, &w);
		sleep(1);
	}
}

static void fork_storm(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "storm", .amount = is_long() ? "5000" : "500"};

	tenant_live(t, k, k, &w);
	for (;;)
		pause();
}

/* From outside into a container that runs, as kubectl exec does it, and runc's own work before. */
static void execs(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "10", .late_ms = 5};
	_cleanup_free_ char *dir = tenant_dir(t, k, k, 0);

	for (;;) {
		tenant_wait(tenant_start(t, k, dir, &w));
		t->shared->ends[k]++;
	}
}

/* By turns in its own cgroup and in the next one. */
static void hop(struct tenants *t, unsigned k)
{
	_cleanup_free_ char *own = tenant_dir(t, k, k, 0), *next = tenant_dir(t, k + 1, k + 1, 0);
	_cleanup_free_ char *number = xasprintf("%u", k + 1);

	tenant_mkdirs(own);
	tenant_mkdirs(next);
	tenant_run(
		t, k, k,
		&(struct tenant_work){.work = "hop", .amount = "0", .others = {number, own, next}});
}

static const struct tenant_work steadily = {.work = "burn", .amount = "0"};

/* 0 to 3 steady, 10 and 12 crash, 14 execs, 16 and 17, 18 hop, 20 forks; their odd neighbours nobody asked for. */
static const struct tenant_wish storm_wishes[] = {
	{.k = 0, .pod = 0},
	{.k = 2, .pod = 2},
	{.k = 10, .pod = 10, .arm = true},
	{.k = 12, .pod = 12, .arm = true},
	{.k = 14, .pod = 14},
	{.k = 16, .pod = 16},
	{.k = 17, .pod = 17},
	{.k = 18, .pod = 18},
	{.k = 20, .pod = 20, .arm = true},
	{.k = 22, .pod = 22},
};

static bool storm_seen(struct fixture *f)
{
	static const unsigned steady[] = {0, 2, 16, 17, 18, 22};
	const struct tenants_shared *s = f->t.shared;
	unsigned scale = is_long() ? 20 : 1;

	for (size_t i = 0; i < ARRAY_SIZE(steady); i++)
		if (n_of(steady[i], EVENT_ON_CPU) < 50 * scale)
			return false;
	return s->ends[10] >= 20 * scale && s->ends[11] >= 20 * scale && s->ends[12] >= 3 * scale &&
	       s->ends[14] >= 20 * scale && s->ends[20] && s->ends[21];
}

/*
 * All at once: crash loops of 1 Hz and as fast as they go, execs, forks by the thousand, processes that change their
 * cgroup, an unselected container in a selected pod; each beside one of its kind that nobody asked for.
 */
static void test_storm_89_90_91_92_96_105_120_121(void **state)
{
	struct fixture *f = *state;
	uint64_t helpers = excluded("runtime_helper");

	NEEDS(f);
	tenant_run(&f->t, 0, 0, &steadily);
	tenant_run(&f->t, 1, 1, &steadily);
	tenant_run(&f->t, 2, 2, &steadily);
	tenant_run(&f->t, 2, 3, &steadily); /* the same pod's */
	tenant_run(&f->t, 14, 14, &(struct tenant_work){.work = "burn", .amount = "1"});
	tenant_run(&f->t, 15, 15, &(struct tenant_work){.work = "burn", .amount = "1"});
	hop(&f->t, 16);
	hop(&f->t, 18);
	hop(&f->t, 22);
	tenants_play(&f->t, crash_loop, 10);
	tenants_play(&f->t, crash_loop, 11);
	tenants_play(&f->t, slow_crash_loop, 12);
	tenants_play(&f->t, slow_crash_loop, 13);
	tenants_play(&f->t, execs, 14);
	tenants_play(&f->t, execs, 15);
	tenants_play(&f->t, fork_storm, 20);
	tenants_play(&f->t, fork_storm, 21);
	start_node(f, storm_wishes, ARRAY_SIZE(storm_wishes));
	arrived.of[17].guest = 16;
	run_until(f, storm_seen, "storms");
	end_and_check(f, true);
	assert_true(arrived.of[10].starts >= 5);
	assert_true(excluded("runtime_helper") > helpers);
}

/* ---- PIDs that come back ---- */

/* Three containers by turns under one PID: one that nobody asked for, and two of different programs. */
static void reuse(struct tenants *t, unsigned k)
{
	static const char *const amounts[] = {"1", "3", "5", "8", "20"};
	_cleanup_free_ char *dirs[3] = {};
	pid_t want = 0, pid;

	for (unsigned i = 0; i < 3; i++) {
		dirs[i] = tenant_dir(t, k + i, k + i, 0);
		tenant_mkdirs(dirs[i]);
	}
	for (unsigned i = 0;; i++) {
		const unsigned who = i % 3;
		const struct tenant_work w = {.work = "burn",
					      .amount = amounts[i / 3 % ARRAY_SIZE(amounts)],
					      .program = who == 1 ? "a" : "t",
					      .want = want};

		pid = tenant_start(t, k + who, dirs[who], &w);
		want = pid < 0 ? 0 : pid;
		if (pid < 0)
			continue; /* somebody else has that number by now */
		tenant_wait(pid);
		t->shared->ends[k + who]++;
	}
}

static bool reuse_seen(struct fixture *f)
{
	return f->t.shared->ends[30] >= (is_long() ? 2000 : 100) && n_of(30, EVENT_ON_CPU) >= 50 &&
	       n_of(31, EVENT_ON_CPU) >= 50;
}

static void test_pid_reuse_104(void **state)
{
	static const struct tenant_wish wishes[] = {{.k = 30, .pod = 30}, {.k = 31, .pod = 31}};
	struct fixture *f = *state;

	NEEDS(f);
	arrived.of[31].program = 'a';
	start_node(f, wishes, ARRAY_SIZE(wishes));
	tenants_play(&f->t, reuse, 30);
	run_until(f, reuse_seen, "many processes of one PID");
	end_and_check(f, true);
}

/* ---- each event of whom it was asked for ---- */

static const struct tenant_wish event_wishes[] = {
	{.k = 0, .pod = 0, .event_mask = 1u << EVENT_ON_CPU},
	{.k = 1, .pod = 1, .event_mask = 1u << EVENT_OFF_CPU},
	{.k = 2, .pod = 2, .event_mask = 1u << EVENT_MEM_ALLOC},
	{.k = 3, .pod = 3, .event_mask = 1u << EVENT_MEM_INUSE},
	{.k = 4, .pod = 4, .event_mask = ALL_FOUR},
	{.k = 6, .pod = 6, .event_mask = ALL_FOUR},
};

static bool events_seen(struct fixture *f)
{
	(void)f;
	for (size_t i = 0; i < ARRAY_SIZE(event_wishes); i++)
		for (enum event e = 0; e < _EVENT_MAX; e++)
			if (event_wishes[i].event_mask & 1u << e &&
			    n_of(event_wishes[i].k, e) < (e == EVENT_MEM_INUSE ? 1 : 5))
				return false;
	return true;
}

/* Each event alone, all of them, none, and all of a process that is by turns where nobody asked. */
static void test_every_event_120_125(void **state)
{
	const struct tenant_work mix = {.work = "mix", .amount = "0"};
	struct fixture *f = *state;

	NEEDS(f);
	for (unsigned k = 0; k < 6; k++)
		tenant_run(&f->t, k, k, &mix);
	hop(&f->t, 6);
	start_node(f, event_wishes, ARRAY_SIZE(event_wishes));
	run_until(f, events_seen, "all events");
	end_and_check(f, false);
}

/* ---- who ended stays nothing ---- */

struct holdings {
	unsigned n_fds, n_entries; /* entries: of all hash maps */
};

static int bpf_call(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static unsigned count_keys(int map)
{
	unsigned char key[256], next[256];
	union bpf_attr attr = {.map_fd = (uint32_t)map, .next_key = (uintptr_t)next};
	unsigned n = 0;

	while (n < 100000 && bpf_call(BPF_MAP_GET_NEXT_KEY, &attr) == 0) {
		n++;
		memcpy(key, next, sizeof(key));
		attr.key = (uintptr_t)key;
	}
	return n;
}

static unsigned count_entries(int fd)
{
	struct bpf_map_info info = {0};
	union bpf_attr attr = {.info = {.bpf_fd = (uint32_t)fd,
					.info_len = sizeof(info),
					.info = (uintptr_t)&info}};

	if (bpf_call(BPF_OBJ_GET_INFO_BY_FD, &attr) < 0 || info.key_size > 256 ||
	    (info.type != BPF_MAP_TYPE_HASH && info.type != BPF_MAP_TYPE_LRU_HASH &&
	     info.type != BPF_MAP_TYPE_PERCPU_HASH) ||
	    str_has_prefix(info.name, "counts_")) /* emptied each second */
		return 0;
	return count_keys(fd);
}

static bool is_map(int fd)
{
	_cleanup_free_ char *path = xasprintf("/proc/self/fd/%d", fd);
	char target[64];
	ssize_t n = readlink(path, target, sizeof(target));

	return n > 0 && memmem(target, (size_t)n, "bpf-map", 7);
}

static struct holdings held_now(void)
{
	struct holdings h = {0};
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d))) {
		h.n_fds++;
		if (is_map(atoi(e->d_name)))
			h.n_entries += count_entries(atoi(e->d_name));
	}
	closedir(d);
	return h;
}

/* The least that there is while so many containers live and die. */
static struct {
	unsigned until_ends;
	struct holdings least;
} watched;

static bool watched_enough(struct fixture *f)
{
	struct holdings h = held_now();

	watched.least.n_fds = MIN(watched.least.n_fds, h.n_fds);
	watched.least.n_entries = MIN(watched.least.n_entries, h.n_entries);
	return f->t.shared->ends[10] >= watched.until_ends;
}

static struct holdings least_during(struct fixture *f, unsigned n_ends)
{
	watched.until_ends = f->t.shared->ends[10] + n_ends;
	watched.least = (struct holdings){~0u, ~0u};
	run_until(f, watched_enough, "the ends of many containers");
	return watched.least;
}

static void test_crash_loop_keeps_nothing_92(void **state)
{
	static const struct tenant_wish wishes[] = {{.k = 10, .pod = 10, .arm = true}};
	unsigned n = is_long() ? 3000 : 40;
	struct fixture *f = *state;
	struct holdings early, late;

	NEEDS(f);
	start_node(f, wishes, ARRAY_SIZE(wishes));
	tenants_play(&f->t, crash_loop, 10);
	tenants_play(&f->t, crash_loop, 11);
	least_during(f, n);
	early = least_during(f, n / 2);
	least_during(f, n);
	late = least_during(f, n / 2);
	print_message("  %u descriptors, %u map entries; %u ends later %u and %u\n", early.n_fds,
		      early.n_entries, 2 * n, late.n_fds, late.n_entries);
	end_and_check(f, true);
	/* What is alive differs by a few; what were kept would be hundreds. */
	assert_true(late.n_fds <= early.n_fds + n / 6);
	assert_true(late.n_entries <= early.n_entries + n / 6);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_storm_89_90_91_92_96_105_120_121),
		T(test_pid_reuse_104),
		T(test_every_event_120_125),
		T(test_crash_loop_keeps_nothing_92),
	};

	(void)set_up_v2;
	/* The parser starts this program as its child. */
	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("node/containers", tests, NULL, NULL);
}
