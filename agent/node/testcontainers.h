/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: a node without an API server, and containers (testtenants.h) whose processes have
 * function names that show their container. The profiles that the node sends must have the same
 * container.
 */
#pragma once

#include "node/internal.h"
#include "node/parse/testnames.h"
#include "node/testtenants.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/testsink.h"

#define HZ	      997
/* time from a container's start until the plan has its id */
#define PLAN_NS	      (300 * NSEC_PER_MSEC)
#define LIMIT_NS      (600 * NSEC_PER_SEC)
#define LONG_LIMIT_NS (3600 * NSEC_PER_SEC)
#define ON_CPU	      (1u << EVENT_ON_CPU)
/* the events of a program that uses no GPU */
#define ALL_EVENTS    ((1u << EVENT_HBM_ALLOC) - 1)

static inline bool is_long(void)
{
	return getenv("LONG") != NULL;
}

/* ---- the profiles that arrived, and the check of them ---- */

/* The samples of one container. */
struct tally {
	/* what the test expects */
	/* 1 << enum event for each wanted event; 0: no target asked for the container */
	unsigned event_mask;
	unsigned pod;
	/* number of a process that moves between this container and another one; TENANTS: none */
	unsigned guest;
	char program;	/* 't' or 'a': the first letter of its functions */
	/* samples that arrived */
	uint64_t n[_EVENT_MAX], value[_EVENT_MAX], named[_EVENT_MAX];
	/*
	 * samples without the container's name, from before the plan had it; how many different
	 * ids arrived
	 */
	uint64_t unnamed_yet, starts;
	char last_id[CONTAINER_ID_BYTES];
};
static struct {
	pthread_mutex_t lock;
	struct tally of[TENANTS];
	unsigned run;
	uint64_t n, lost, n_profiles, n_wrong;
	char wrong[400];
} arrived = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((format(printf, 1, 2))) static inline void is_wrong(const char *form, ...)
{
	va_list args;

	va_start(args, form);
	if (!arrived.n_wrong++)
		vsnprintf(arrived.wrong, sizeof(arrived.wrong), form, args);
	va_end(args);
}

/* "tenant_07" gives 7 and 't'. -1: not a function of a container's program. */
static inline int whose_function(const char *name, char *ret_program)
{
	unsigned k;

	if (!name || (sscanf(name, "tenant_%2u", &k) != 1 && sscanf(name, "alien_%2u", &k) != 1))
		return -1;
	*ret_program = name[0];
	return (int)k;
}

static inline void check_stack(const struct batch *b, const struct profile *p,
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
				 profile_event_info(p->event)->name, k, name, p->app_service,
				 (unsigned long)s->n_samples);
		t->named[p->event] += s->n_samples;
		return;
	}
}

static inline int whose_profile(const struct profile *p, const char *id)
{
	unsigned start, run, k;

	if (!id || sscanf(id, "%56x%6x%2x", &run, &start, &k) != 3 || k >= TENANTS ||
	    run != arrived.run) {
		is_wrong("a profile of %s has the container id '%s'", p->app_service, id ? id : "");
		return -1;
	}
	return (int)k;
}

static inline void check_tags(const struct profile *p, unsigned k)
{
	const struct tally *t = &arrived.of[k];
	const char *pod = profile_tag_get(p, "pod");
	unsigned number = TENANTS;
	char program = 0;

	if (!(t->event_mask & 1u << p->event))
		is_wrong("container %u was not asked for %s", k,
			 profile_event_info(p->event)->name);
	if (!pod || sscanf(pod, "pod-%2u", &number) != 1 || number != t->pod)
		is_wrong("container %u is said to be of pod '%s'", k, pod ? pod : "");
	if (streq(p->app_service, "Throttled"))
		return;
	if (sscanf(p->app_service, "%c-%2u", &program, &number) != 2 || program != t->program ||
	    (number != k && number != t->guest))
		is_wrong("%s: container %u has samples of %s",
			 profile_event_info(p->event)->name, k, p->app_service);
}

static inline void check_profile(const struct batch *b, const struct profile *p)
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

/* Takes what the agent would send to the hub. Runs on a worker's thread. */
static inline int take(const void *body, size_t n, void *arg)
{
	(void)arg;
	return testsink_take(body, n, &arrived.lock, check_profile);
}

/*
 * Returns the number of samples that have the container's own function. If no names can be read
 * here, returns the number of all its samples.
 */
static inline uint64_t n_of(unsigned k, enum event e)
{
	uint64_t n;

	pthread_mutex_lock(&arrived.lock);
	n = names_missing() ? arrived.of[k].n[e] : arrived.of[k].named[e];
	pthread_mutex_unlock(&arrived.lock);
	return n;
}

/* ---- counters: their values, and the growth during a test ---- */

struct sums {
	uint64_t taken, delivered, kernel_dropped, folded, excluded, lost;
};
static struct sums sums_before;

static inline void add_counter(const char *name, const char *label, const char *reason,
			       uint64_t value, void *arg)
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

static inline struct sums sums_now(void)
{
	struct sums s = {0};

	counter_each(add_counter, &s);
	return s;
}

static inline uint64_t excluded(const char *reason)
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
	/* number of the last start of each container, as in the last plan */
	unsigned starts[TENANTS];
	struct timer plan, poll;
	bool (*until)(struct fixture *f);
	uint64_t due_ns;
	bool reached;
};

static inline int set_up_in(void **state, const char *force)
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

static inline int set_up(void **state)
{
	return set_up_in(state, "");
}

static inline int set_up_v2(void **state)
{
	return set_up_in(state, "v2");
}

static inline int tear_down(void **state)
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

static inline void plan_again(void *arg)
{
	struct fixture *f = arg;

	timer_set(f->loop, &f->plan, PLAN_NS, plan_again, f);
	for (unsigned k = 0; k < TENANTS; k++)
		f->starts[k] = __atomic_load_n(&f->t.shared->starts[k], __ATOMIC_ACQUIRE);
	proc_containers_apply(f->node->containers,
			      tenants_plan(&f->t, f->wishes, f->n_wishes, f->starts, HZ),
			      now_boot_ns());
	kernel_sync(f->node->kernel);
}

static inline void start_node(struct fixture *f, const struct tenant_wish *wishes, size_t n)
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

static inline void poll_fire(void *arg)
{
	struct fixture *f = arg;

	f->reached = f->until(f);
	if (f->reached || now_mono_ns() > f->due_ns || arrived.n_wrong)
		loop_stop(f->loop, 0);
	else
		timer_set(f->loop, &f->poll, 20 * NSEC_PER_MSEC, poll_fire, f);
}

/* Prints how far each container's work is. */
static inline void tell_progress(const struct fixture *f)
{
	for (unsigned k = 0; k < TENANTS; k++)
		if (f->t.shared->ends[k] || n_of(k, EVENT_ON_CPU))
			print_message("  container %u: %u ends, %lu samples\n", k,
				      f->t.shared->ends[k], n_of(k, EVENT_ON_CPU));
}

static inline void run_until(struct fixture *f, bool (*until)(struct fixture *f), const char *what)
{
	f->until = until;
	f->due_ns = now_mono_ns() + (is_long() ? LONG_LIMIT_NS : LIMIT_NS);
	timer_set(f->loop, &f->poll, 0, poll_fire, f);
	loop_run(f->loop);
	timer_cancel(&f->poll);
	if (arrived.n_wrong)
		fail_msg("%lu wrong, the first: %s", arrived.n_wrong, arrived.wrong);
	if (!f->reached)
		tell_progress(f);
	if (!f->reached)
		fail_msg("not reached: %s", what);
}

/*
 * Ends the node. Asserts that no sample has a wrong container, and that no sample is missing
 * without a counted reason.
 */
static inline void end_and_check(struct fixture *f, bool on_cpu_alone)
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

/* ---- tests ---- */

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define NEEDS(f)                                                                                   \
	do {                                                                                       \
		if (!(f))                                                                          \
			skip();                                                                    \
	} while (0)

static inline int run_group(const char *name, const struct CMUnitTest *tests, size_t n, int argc,
			    char **argv)
{
	/* the parser runs this program as its child */
	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}
