// SPDX-License-Identifier: Apache-2.0
/*
 * Which tasks the filter selects: cgroups of both hierarchies, child cgroups that are made later,
 * PID namespaces.
 */
#include "node/probe/cgroups_test.h"
#include "node/probe/workload_test.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "core.skel.h"

/* Processes that were moved into a cgroup in v1 only, in v2 only, in both, and in neither. */
static void moved(bool v2)
{
	struct probe_config config = {
		.hierarchy = hierarchy(v2), .use_cgroups = true, .max_sample_hz = 999};
	char *own = cgroup_make(config.hierarchy.mount, "own"), *other;
	struct child c[4];
	struct tally t[4];
	struct probes *p;
	uint64_t id = cgroup_id(own);

	hierarchy(!v2);
	other = cgroup_make(v2 ? mount_v1 : mount_v2, "other");
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = child_start(body_work, NULL);
		t[i] = (struct tally){.pid = c[i].pid};
	}
	cgroup_move(own, c[0].pid);
	cgroup_move(other, c[1].pid);
	cgroup_move(own, c[2].pid);
	cgroup_move(other, c[2].pid);
	p = open_probes(config);
	select_cgroups(p, &id, 1);
	drain_until(p, t, 4, 300);
	assert_true(t[2].n > 0);
	assert_int_equal(t[0].cgroup_id, id);
	assert_int_equal(t[2].cgroup_id, id);
	assert_int_equal(t[1].n, 0);
	assert_int_equal(t[3].n, 0);
	assert_int_equal(t[0].others, t[2].n);
	/*
	 * Moves the process out of the cgroup. The next drain has its last samples; after that, no
	 * more may come.
	 */
	cgroup_move(config.hierarchy.mount, c[0].pid);
	drain_into(p, t, 4);
	t[0].n = t[2].n = 0;
	drain_until(p, &t[2], 1, 100);
	assert_int_equal(t[0].n, 0);
	probes_free(p);
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		child_stop(&c[i]);
	cgroup_remove(own);
	cgroup_remove(other);
}

static void v1_cgroups(void **state)
{
	(void)state;
	moved(false);
}

static void v2_cgroups(void **state)
{
	(void)state;
	moved(true);
}

/* ---- children of a selected cgroup ---- */

static bool drained_cgroup(struct probes *p, uint64_t id, bool removed, struct raw_cgroup *ret)
{
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	bool found = false;

	while (!found && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		assert_int_equal(probes_drain(p, false, &d), 0);
		for (size_t i = 0; i < d->n_cgroups; i++)
			if (d->cgroups[i].id == id && d->cgroups[i].removed == removed) {
				*ret = d->cgroups[i];
				ret->path = NULL;
				assert_string_equal(strrchr(d->cgroups[i].path, '/'), "/child");
				found = true;
			}
		sample_drain_free(d);
	}
	return found;
}

static bool in_kernel_filter(struct probes *p, uint64_t id)
{
	struct pf_filter f;

	return !bpf_map_lookup_elem(bpf_map__fd(p->core->maps.filter_cgroups), &id, &f);
}

static void children_are_selected_in_the_kernel(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	char *parent = cgroup_make(mount_v1, "parent"), *child;
	struct child c = child_start(body_work, NULL);
	struct tally t = {.pid = c.pid};
	struct probes *p = open_probes(config);
	uint64_t ids[2] = {cgroup_id(parent)};
	struct raw_cgroup made, gone;

	(void)state;
	select_cgroups(p, ids, 1);
	child = cgroup_make(parent, "child");
	ids[1] = cgroup_id(child);
	assert_true(in_kernel_filter(p, ids[1]));
	cgroup_move(child, c.pid);
	/* User space does not know the child yet, so this selection does not deselect it. */
	select_cgroups(p, ids, 1);
	assert_true(in_kernel_filter(p, ids[1]));
	drain_until(p, &t, 1, 50);
	assert_int_equal(t.cgroup_id, ids[1]);
	child_stop(&c);
	cgroup_remove(child);
	assert_true(drained_cgroup(p, ids[1], true, &gone));
	assert_false(in_kernel_filter(p, ids[1]));

	child = cgroup_make(parent, "child");
	ids[1] = cgroup_id(child);
	assert_true(drained_cgroup(p, ids[1], false, &made));
	assert_int_equal(made.parent_id, ids[0]);
	assert_true(made.armed);
	/* From now on, user space decides about the child. */
	select_cgroups(p, ids, 2);
	assert_true(in_kernel_filter(p, ids[1]));
	select_cgroups(p, ids, 1);
	assert_false(in_kernel_filter(p, ids[1]));
	cgroup_remove(child);
	probes_free(p);
	cgroup_remove(parent);
}

/* A drain reports the child too late for the filter, so this filter must not deselect it. */
static void a_child_that_the_filters_maker_did_not_know_stays(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	char *parent = cgroup_make(mount_v1, "parent"), *child;
	struct probes *p = open_probes(config);
	uint64_t id = cgroup_id(parent), child_id;
	struct raw_cgroup made;

	(void)state;
	select_cgroups(p, &id, 1);
	probes_knows(p, 0);
	child = cgroup_make(parent, "child");
	child_id = cgroup_id(child);
	assert_true(drained_cgroup(p, child_id, false, &made));
	select_cgroups(p, &id, 1);
	assert_true(in_kernel_filter(p, child_id));
	probes_knows(p, UINT64_MAX);
	select_cgroups(p, &id, 1);
	assert_false(in_kernel_filter(p, child_id));
	cgroup_remove(child);
	probes_free(p);
	cgroup_remove(parent);
}

static void a_child_of_a_deselected_one_does_not_stay(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	char *parent = cgroup_make(mount_v1, "parent"), *child;
	struct probes *p = open_probes(config);
	uint64_t id = cgroup_id(parent), child_id;
	struct raw_cgroup made;

	(void)state;
	select_cgroups(p, &id, 1);
	child = cgroup_make(parent, "child");
	child_id = cgroup_id(child);
	select_cgroups(p, NULL, 0);
	assert_true(drained_cgroup(p, child_id, false, &made));
	assert_false(in_kernel_filter(p, child_id));
	cgroup_remove(child);
	probes_free(p);
	cgroup_remove(parent);
}

#define FILTER_KEYS PF_FILTER_MAX

static bool kernel_filter_is_full(struct probes *p)
{
	const uint64_t id = 4711;

	return bpf_map_update_elem(bpf_map__fd(p->core->maps.filter_cgroups), &id,
				   &(struct pf_filter){}, BPF_NOEXIST) == -E2BIG;
}

/* Removals come first, also if the new filter has more rows than the map can hold. */
static void who_opts_out_of_a_full_map_is_not_profiled(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	struct probes *p = open_probes(config);
	_cleanup_free_ struct container_filter *f = xcalloc(FILTER_KEYS + 3, sizeof(*f));

	(void)state;
	for (size_t i = 0; i < FILTER_KEYS + 3; i++)
		f[i] = (struct container_filter){.cgroup_id = (1ull << 40) + i,
						 .event_mask = 1u << EVENT_ON_CPU,
						 .sample_hz = 99};
	assert_int_equal(probes_filter(p, f, FILTER_KEYS), 0);
	assert_true(kernel_filter_is_full(p));
	assert_int_equal(probes_filter(p, f + 1, FILTER_KEYS), 0);
	assert_true(kernel_filter_is_full(p));
	assert_false(in_kernel_filter(p, f[0].cgroup_id));
	assert_true(in_kernel_filter(p, f[FILTER_KEYS].cgroup_id));
	assert_int_equal(probes_filter(p, f + 2, FILTER_KEYS + 1), -E2BIG);
	assert_false(in_kernel_filter(p, f[1].cgroup_id));
	assert_true(in_kernel_filter(p, f[2].cgroup_id));
	probes_free(p);
}

/*
 * The kernel has selected new cgroups below a selected one until the map was full, and the agent
 * has not read of them yet. They make room for those that the agent selects.
 */
static void children_make_room_for_the_agent(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	char *parent = cgroup_make(mount_v1, "parent"), *child;
	struct probes *p = open_probes(config);
	_cleanup_free_ struct container_filter *f = xcalloc(FILTER_KEYS, sizeof(*f));
	uint64_t child_id;

	(void)state;
	for (size_t i = 0; i < FILTER_KEYS; i++)
		f[i] = (struct container_filter){.cgroup_id =
							 i ? (1ull << 40) + i : cgroup_id(parent),
						 .event_mask = 1u << EVENT_ON_CPU,
						 .sample_hz = 99};
	assert_int_equal(probes_filter(p, f, FILTER_KEYS - 1), 0);
	child = cgroup_make(parent, "child");
	child_id = cgroup_id(child);
	assert_true(in_kernel_filter(p, child_id));
	assert_int_equal(probes_filter(p, f, FILTER_KEYS), 0);
	assert_true(in_kernel_filter(p, f[FILTER_KEYS - 1].cgroup_id));
	assert_false(in_kernel_filter(p, child_id));
	cgroup_remove(child);
	probes_free(p);
	cgroup_remove(parent);
}

/*
 * If the map is full, a child cgroup is not selected, and that is counted. The next filter may
 * select it.
 */
static void a_child_without_room_is_counted(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	struct counter *full = counter("podflame_records_dropped_total", "reason", "cgroup_full");
	char *parent = cgroup_make(mount_v1, "parent"), *child;
	struct probes *p = open_probes(config);
	_cleanup_free_ struct container_filter *f = xcalloc(FILTER_KEYS, sizeof(*f));
	uint64_t before = counter_get(full), child_id;
	struct drain *d = NULL;

	(void)state;
	for (size_t i = 0; i < FILTER_KEYS; i++) /* ids that no cgroup has here */
		f[i] = (struct container_filter){.cgroup_id =
							 i ? (1ull << 40) + i : cgroup_id(parent),
						 .event_mask = 1u << EVENT_ON_CPU,
						 .sample_hz = 99};
	assert_int_equal(probes_filter(p, f, FILTER_KEYS), 0);
	child = cgroup_make(parent, "child");
	child_id = cgroup_id(child);
	assert_false(in_kernel_filter(p, child_id));
	assert_int_equal(probes_drain(p, true, &d), 0);
	sample_drain_free(d);
	assert_int_equal(counter_get(full) - before, 1);
	f[1].cgroup_id = child_id;
	assert_int_equal(probes_filter(p, f, FILTER_KEYS), 0);
	assert_true(in_kernel_filter(p, child_id));
	cgroup_remove(child);
	probes_free(p);
	cgroup_remove(parent);
}

static size_t count_cgroup_records(struct probes *p)
{
	struct drain *d = NULL;
	size_t n;

	assert_int_equal(probes_drain(p, true, &d), 0);
	n = d->n_cgroups;
	sample_drain_free(d);
	return n;
}

static void pods_are_told_strangers_not(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	struct probes *p = open_probes(config);
	struct raw_cgroup made;
	char *dir, *child;

	(void)state;
	dir = cgroup_make(mount_v1, "stranger");
	cgroup_remove(dir);
	assert_int_equal(count_cgroup_records(p), 0);
	dir = cgroup_make(mount_v1, "kubepods.slice");
	child = cgroup_make(dir, "child");
	assert_true(drained_cgroup(p, cgroup_id(child), false, &made));
	assert_false(made.armed);
	assert_false(in_kernel_filter(p, cgroup_id(child)));
	cgroup_remove(child);
	cgroup_remove(dir);
	/* The other hierarchy has cgroups of the same pods, so their records are not sent twice. */
	hierarchy(true);
	count_cgroup_records(p);
	dir = cgroup_make(mount_v2, "kubepods.slice");
	cgroup_remove(dir);
	assert_int_equal(count_cgroup_records(p), 0);
	probes_free(p);
}

/* LISTED: of this cgroup, only the processes in the list are selected. */
static void listed_processes_of_a_cgroup(void **state)
{
	struct probe_config config = {.hierarchy = hierarchy(false),
				      .use_cgroups = true,
				      .use_list = true,
				      .max_sample_hz = 999};
	char *dir = cgroup_make(mount_v1, "listed");
	struct child c[2] = {child_start(body_work, NULL), child_start(body_work, NULL)};
	struct tally t = {.pid = c[0].pid};
	struct container_filter f = {.cgroup_id = cgroup_id(dir),
				     .event_mask = 1u << EVENT_ON_CPU,
				     .sample_hz = 999,
				     .listed = true};
	struct probes *p = open_probes(config);

	(void)state;
	cgroup_move(dir, c[0].pid);
	cgroup_move(dir, c[1].pid);
	assert_int_equal(probes_filter(p, &f, 1), 0);
	list_pids(p, 1, c, (unsigned[]){999});
	drain_until(p, &t, 1, 200);
	assert_int_equal(t.others, 0);
	assert_int_equal(t.cgroup_id, f.cgroup_id);
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
	cgroup_remove(dir);
}

/* ---- processes that were forked and have not called exec ---- */

static void *nothing(void *arg)
{
	return arg;
}

static void step(struct truth *t, uint32_t done, uint32_t wait_for)
{
	t->ready = done;
	while (t->ready != wait_for)
		nap(1);
}

/* At step 2, has made a thread and a vfork; at step 4, a child, whose PID is short_ns. */
static void body_forks(struct truth *t)
{
	pthread_t thread;
	pid_t pid;

	step(t, 0, 1);
	assert_se(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL));
	pid = vfork();
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	step(t, 2, 3);
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	t->short_ns = pid;
	step(t, 4, 5);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	t->ready = 6;
}

static bool is_reported(struct probes *p, pid_t pid)
{
	struct drain *d = NULL;
	bool found = false;

	assert_int_equal(probes_drain(p, false, &d), 0);
	for (size_t i = 0; i < d->n_procs; i++)
		found |= d->procs[i].tgid == (uint32_t)pid && d->procs[i].what == RAW_PROC_SEEN;
	sample_drain_free(d);
	return found;
}

static void step_of(const struct child *c, uint32_t begin, uint32_t end)
{
	c->truth->ready = begin;
	while (c->truth->ready != end)
		nap(1);
}

static void who_is_forked_is_reported(void **state)
{
	struct probe_config config = {
		.hierarchy = hierarchy(false), .use_cgroups = true, .max_sample_hz = 999};
	char *own = cgroup_make(mount_v1, "own");
	struct child c = child_start(body_forks, NULL);
	struct probes *p = open_probes(config);
	struct pollfd wake = {.fd = probes_wake_fd(p), .events = POLLIN};
	uint64_t id = cgroup_id(own);

	(void)state;
	cgroup_move(own, c.pid);
	select_cgroups(p, &id, 1);
	assert_int_equal(probes_announce(p), 0);
	assert_true(is_reported(p, c.pid));
	step_of(&c, 1, 2);
	assert_false(probes_forked(p));
	assert_false(is_reported(p, 0));
	step_of(&c, 3, 4);
	assert_true(probes_forked(p));
	assert_int_equal(poll(&wake, 1, 10000), 1);
	assert_int_equal(probes_announce(p), 0);
	assert_false(probes_forked(p));
	assert_true(is_reported(p, (pid_t)c.truth->short_ns));
	step_of(&c, 5, 6);
	child_stop(&c);
	probes_free(p);
	cgroup_remove(own);
}

/* ---- PID namespaces ---- */

/*
 * Starts the first process of a new PID namespace, whose child runs body, as in kind's node
 * containers.
 */
static pid_t in_new_namespace(body_fn *body, struct truth *t)
{
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(t);
		_exit(0);
	}
	return pid;
}

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/*
 * Runs as PID 1 of a namespace, like an agent in a node container. /proc is still that of the outer
 * namespace.
 */
static void body_inner_agent(struct truth *t)
{
	struct cgroup_hierarchy h = {};
	struct probe_config config = {.use_cgroups = true, .max_sample_hz = 999};
	struct container_filter f = {.event_mask = 1u << EVENT_ON_CPU, .sample_hz = 999};
	struct probes *p = NULL;
	struct field_error err;
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, n = 0, deep = 0;
	_cleanup_free_ char *dir = NULL;
	pid_t pid, inner;
	bool told = false;

	CHECK(getpid() == 1);
	CHECK(!proc_cgroup_choose("v1:memory", &h, &err));
	config.hierarchy = h;
	dir = xasprintf("%s/pf_test-%d-ns", h.mount, run);
	f.cgroup_id = cgroup_id(dir);
	pid = fork();
	if (pid == 0)
		body_work(t);
	inner = in_new_namespace(body_work, t);
	CHECK(pid == 2 && inner == 3);
	CHECK(!probes_new(&config, &p, &err));
	CHECK(!probes_filter(p, &f, 1));
	while ((n < 50 || deep < 50) && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		nap(50);
		CHECK(!probes_drain(p, true, &d));
		for (size_t i = 0; i < d->n_samples; i++) {
			/*
			 * 1: this process itself. Never 0, because the process outside is not
			 * visible in this namespace.
			 */
			CHECK(d->samples[i].tgid >= 1 && d->samples[i].tgid <= 3);
			CHECK(d->samples[i].tid == d->samples[i].tgid);
			n += d->samples[i].tgid == 2 ? d->samples[i].n : 0;
			deep += d->samples[i].tgid == 3 ? d->samples[i].n : 0;
		}
		for (size_t i = 0; i < d->n_procs; i++)
			if (d->procs[i].tgid == 3) {
				CHECK(d->procs[i].tgid_own == 1);
				CHECK(d->procs[i].tgid_root > 3);
				told = true;
			}
		sample_drain_free(d);
	}
	CHECK(n >= 50 && deep >= 50 && told);
	CHECK(counter_get(counter("podflame_samples_dropped_total", "reason", "no_pid")) > 0);
	probes_free(p);
	kill(pid, SIGKILL);
	kill(inner, SIGKILL);
}

/* Works as PID 6 of a namespace that is not the agent's. There is no such PID for the agent. */
static void body_sibling(struct truth *t)
{
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (pid == 0 && i == 4) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			body_work(t);
		}
		if (pid == 0)
			_exit(0);
	}
	pause();
}

static void body_beside(struct truth *t)
{
	waitpid(in_new_namespace(body_sibling, t), NULL, 0);
}

static void body_outside(struct truth *t)
{
	int status;
	pid_t agent = in_new_namespace(body_inner_agent, t);

	waitpid(agent, &status, 0);
	_exit(agent > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 2);
}

static void pids_are_the_agents_own(void **state)
{
	struct truth *shared;
	struct child c, beside;
	pid_t outside;
	char *dir;
	int status;

	(void)state;
	hierarchy(false);
	dir = cgroup_make(mount_v1, "ns");
	/* The inner agent's filter selects this process, but it is in the outer namespace. */
	c = child_start(body_work, NULL);
	cgroup_move(dir, c.pid);
	cgroup_move(dir, getpid()); /* so that all children begin in that cgroup */
	beside = child_start(body_beside, NULL);
	shared = c.truth;
	outside = fork();
	if (outside == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body_outside(shared);
	}
	cgroup_move(mount_v1, getpid());
	assert_int_equal(waitpid(outside, &status, 0), outside);
	child_stop(&c);
	child_stop(&beside);
	cgroup_remove(dir);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(v1_cgroups),
		cmocka_unit_test(v2_cgroups),
		cmocka_unit_test(children_are_selected_in_the_kernel),
		cmocka_unit_test(a_child_that_the_filters_maker_did_not_know_stays),
		cmocka_unit_test(a_child_of_a_deselected_one_does_not_stay),
		cmocka_unit_test(who_opts_out_of_a_full_map_is_not_profiled),
		cmocka_unit_test(children_make_room_for_the_agent),
		cmocka_unit_test(a_child_without_room_is_counted),
		cmocka_unit_test(pods_are_told_strangers_not),
		cmocka_unit_test(listed_processes_of_a_cgroup),
		cmocka_unit_test(who_is_forked_is_reported),
		cmocka_unit_test(pids_are_the_agents_own),
	};

	run = getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
