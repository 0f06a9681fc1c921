/* SPDX-License-Identifier: Apache-2.0 */
/* A CPU limit keeps a container from running: the time goes to the next drain, once. Needs root. */
#include "lib/base/testclock.h"
#include "node/kernel/testkernel.h"
#include "node/pipeline/internal.h"
#include "node/plan/testplan.h"
#include "node/proc/testcgroup.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "lib/loop/testtimer.h"

#define UID	    "401b6bf6-91e0-4a28-870a-232376283f12"
#define C8(c)	    #c #c #c #c #c #c #c #c
#define ID	    C8(a) C8(a) C8(a) C8(a) C8(a) C8(a) C8(a) C8(a)
#define DEADLINE_NS (60 * NSEC_PER_SEC)

struct fixture {
	struct work *work;
	struct pipeline pipeline;
};

/* Makes a pipeline that runs its tasks at once. */
static void make_pipeline(struct fixture *n, const struct cgroup_hierarchy *h)
{
	*n = (struct fixture){.work = work_new(timer_loop())};
	n->work->closing = true;
	n->pipeline.config = (struct pipeline_config){.work = n->work, .hierarchy = h};
	assert_int_equal(proc_containers_new(&n->pipeline.config.containers), 0);
	n->work->containers = n->pipeline.config.containers;
	n->pipeline.config.kernel = testkernel_new(n->work, NULL);
	n->pipeline.throttle = pipeline_throttle_new(&n->pipeline);
}

/* Makes a node with one container. The cgroup of the container is that of this program. */
static void make_node(struct fixture *n, const struct own_cgroup *o)
{
	struct plan *plan = testplan(UID, UID, ID, false);
	uint64_t id;

	make_pipeline(n, &o->h);
	plan->pods->containers->event_mask = 1u << EVENT_OFF_CPU;
	proc_containers_apply(n->pipeline.config.containers, plan, 1);
	assert_int_equal(proc_cgroup_id_of(&o->h, o->name, &id), 0);
	proc_containers_cgroup(n->pipeline.config.containers, id, 1, "/kubepods/pod" UID "/" ID,
			       false, 1);
}

static void node_done(struct fixture *n)
{
	pipeline_throttle_free(n->pipeline.throttle);
	testkernel_free(n->pipeline.config.kernel);
	proc_containers_free(n->pipeline.config.containers);
	work_free(n->work);
}

/* Reads until a throttled time is reported, and once more. Returns the sum of the times. */
static uint64_t told_us(struct fixture *n, bool *ret_named)
{
	uint64_t deadline_ns = now_mono_ns() + DEADLINE_NS, us = 0;

	while (!us && now_mono_ns() < deadline_ns) {
		struct feed f = {0};

		pipeline_throttle_tick(n->pipeline.throttle);
		pipeline_throttle_take(n->pipeline.throttle, &f);
		for (size_t i = 0; i < f.n_held_back; i++) {
			us += f.held_back[i].us;
			*ret_named = streq(f.held_back[i].owner->container_id, ID) &&
				     f.held_back[i].n > 0;
		}
		pipeline_feed_done(&f);
		usleep(50000);
	}
	return us;
}

static uint64_t held_back_ns(const struct own_cgroup *o)
{
	struct cgroup_cpu cpu;
	uint64_t id;

	assert_int_equal(proc_cgroup_id_of(&o->h, o->name, &id), 0);
	assert_int_equal(proc_cgroup_cpu_read(&o->h, id, &cpu), 0);
	return cpu.throttled_ns;
}

static void wait_held_back(const struct own_cgroup *o)
{
	uint64_t deadline_ns = now_mono_ns() + DEADLINE_NS, before_ns = held_back_ns(o);

	while (held_back_ns(o) < before_ns + NSEC_PER_MSEC && now_mono_ns() < deadline_ns)
		usleep(50000);
}

static void test_held_back(void **state)
{
	struct own_cgroup o;
	struct fixture n;
	bool named = false;
	uint64_t us, all_ns;

	(void)state;
	if (!own_cgroup_make(&o) || !own_cgroup_limit(&o)) {
		own_cgroup_remove(&o);
		print_message("no cgroup with a CPU limit can be made here\n");
		skip();
	}
	make_node(&n, &o);
	own_cgroup_burn(&o);
	us = told_us(&n, &named);
	us += told_us(&n, &named);
	all_ns = held_back_ns(&o);
	own_cgroup_remove(&o);
	assert_true(us > 0);
	assert_true(us <= all_ns / 1000); /* no time is reported twice */
	assert_true(named);
	node_done(&n);
}

/*
 * A target was suspended for hours. The first reading after that must not report how long its
 * containers were throttled in these hours.
 */
static void test_nobody_looks(void **state)
{
	struct own_cgroup o;
	struct feed f = {0};
	struct fixture n;
	bool named = false;

	(void)state;
	if (!own_cgroup_make(&o) || !own_cgroup_limit(&o)) {
		own_cgroup_remove(&o);
		print_message("no cgroup with a CPU limit can be made here\n");
		skip();
	}
	make_node(&n, &o);
	own_cgroup_burn(&o);
	assert_true(told_us(&n, &named) > 0);
	pipeline_throttle_off(n.pipeline.throttle);
	wait_held_back(&o);
	pipeline_throttle_off(n.pipeline.throttle);
	test_clock.later_ns += 3600 * NSEC_PER_SEC;
	pipeline_throttle_tick(n.pipeline.throttle);
	pipeline_throttle_take(n.pipeline.throttle, &f);
	assert_int_equal(f.n_held_back, 0);
	pipeline_feed_done(&f);
	assert_true(told_us(&n, &named) > 0); /* later throttled time is reported */
	own_cgroup_remove(&o);
	node_done(&n);
}

static char *hex_id(unsigned i)
{
	return xasprintf("%064x", i);
}

#define MAX_CONTAINERS 2048 /* as in throttle.c */
#define OTHER_UID      "401b6bf6-91e0-4a28-870a-232376283f13"

/* Adds containers to the pod, until it has n. */
static void add_containers(struct plan_pod *pod, unsigned n)
{
	pod->containers = xrealloc(pod->containers, n * sizeof(*pod->containers));
	pod->containers[0].event_mask = 1u << EVENT_OFF_CPU;
	for (unsigned i = 1; i < n; i++)
		pod->containers[i] =
			(struct plan_container){.id = hex_id(i),
						.name = xstrdup("c"),
						.event_mask = 1u << EVENT_OFF_CPU,
						.sample_hz = 99,
						.n_targets = 1,
						.targets = xcalloc(1, sizeof(uint16_t))};
	pod->n_containers = n;
}

/* Adds the pod of another namespace, with one container. */
static void add_victim(struct plan *plan)
{
	_cleanup_free_ char *id = hex_id(1000000);
	struct plan *other = testplan(OTHER_UID, OTHER_UID, id, false);

	other->pods->containers->event_mask = 1u << EVENT_OFF_CPU;
	free(other->pods->ns);
	other->pods->ns = xstrdup("bank");
	testplan_take(plan, other);
}

/*
 * A namespace has more containers than any real node. Those beyond its share are counted at each
 * reading, and told; that of another namespace is read.
 */
static void containers_of_one_namespace_leave_room(void **state)
{
	struct counter *too_many = counter("podflame_cpu_stat_failed_total", "reason", "too_many");
	uint64_t before = counter_get(too_many);
	struct plan *plan = testplan(UID, UID, ID, false);
	struct cgroup_hierarchy h = {.mount = "/nonexistent"};
	struct fixture n;

	(void)state;
	make_pipeline(&n, &h);
	add_containers(plan->pods, MAX_CONTAINERS + 2);
	add_victim(plan);
	proc_containers_apply(n.pipeline.config.containers, plan, 1);
	for (unsigned i = 0; i < MAX_CONTAINERS + 3; i++) {
		const bool victim = i == MAX_CONTAINERS + 2;
		_cleanup_free_ char *path =
			xasprintf("/kubepods/pod%s/%s", victim ? OTHER_UID : UID,
				  plan->pods[victim].containers[victim ? 0 : i].id);

		proc_containers_cgroup(n.pipeline.config.containers, 100 + i, 1, path, false, 1);
	}
	pipeline_throttle_tick(n.pipeline.throttle);
	assert_int_equal(counter_get(too_many) - before, 2 + MAX_CONTAINERS / 4);
	assert_int_equal(n.pipeline.config.kernel->shares.n, 1);
	assert_int_equal(n.pipeline.config.kernel->shares.items[0].what.table, SHARED_THROTTLED);
	assert_int_equal(n.pipeline.config.kernel->shares.items[0].what.ns, proc_ns_hash("app"));
	node_done(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held_back),
		cmocka_unit_test(test_nobody_looks),
		cmocka_unit_test(containers_of_one_namespace_leave_room),
	};

	return cmocka_run_group_tests_name("node/pipeline/throttle", tests, NULL, NULL);
}
