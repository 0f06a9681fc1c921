// SPDX-License-Identifier: Apache-2.0
/*
 * What a tick remembers of cgroups that are not selected (bpf/filter.h). If such a cgroup is
 * selected later, it is sampled at once.
 */
#include "node/probe/cgroups_test.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

#define AT_ONCE_NS    (150 * 1000000ull) /* CPU time, with fewer ticks than PF_ASK_AGAIN, 256 */
#define AT_ONCE_TICKS 40		 /* of 150 ticks: a virtual machine may miss some */
#define TRIES	      5

static struct probe_config config_of(bool v2)
{
	return (struct probe_config){
		.hierarchy = hierarchy(v2), .use_cgroups = true, .max_sample_hz = 999};
}

static void runs_for(pid_t pid, uint64_t ns)
{
	uint64_t until = program_cpu_ns(pid) + ns, deadline = now_mono_ns() + 120 * NSEC_PER_SEC;

	while (program_cpu_ns(pid) < until && now_mono_ns() < deadline)
		nap(5);
}

/* Until `select` is called, ticks remember the process as not selected. */
static bool is_sampled_at_once(struct probes *p, struct child *c,
			       void (*select)(struct probes *p, struct child *c,
					      const char *dirs[2]),
			       const char *dirs[2])
{
	struct tally t = {.pid = c->pid};

	runs_for(c->pid, AT_ONCE_NS);
	drain_into(p, &t, 1);
	assert_int_equal(t.n, 0);
	/* so that the ticks do not ask the filter again because of PF_ASK_AGAIN */
	for (int cpu = 0; cpu < p->n_possible_cpus; cpu++)
		*(volatile uint64_t *)&p->unselected[cpu].ticks = 0;
	select(p, c, dirs);
	runs_for(c->pid, AT_ONCE_NS);
	drain_into(p, &t, 1);
	return t.n >= AT_ONCE_TICKS;
}

static void select_second(struct probes *p, struct child *c, const char *dirs[2])
{
	uint64_t ids[] = {cgroup_id(dirs[0]), cgroup_id(dirs[1])};

	(void)c;
	select_cgroups(p, ids, 2);
}

static void move_to_first(struct probes *p, struct child *c, const char *dirs[2])
{
	(void)p;
	cgroup_move(dirs[0], c->pid);
}

static void move_to_child_of_first(struct probes *p, struct child *c, const char *dirs[2])
{
	_cleanup_free_ char *child = cgroup_make(dirs[0], "child");

	(void)p;
	cgroup_move(child, c->pid);
}

/*
 * A busy process is in the second of two cgroups. The first one is selected, so that the CPU clock
 * ticks.
 */
struct scene {
	char *first, *second, *elsewhere; /* elsewhere: in the other hierarchy; NULL: not made */
	struct child c;
	struct probes *p;
};

static void scene_open(struct scene *s, bool v2, bool elsewhere)
{
	struct probe_config config = config_of(v2);
	const char *mount = config.hierarchy.mount;
	uint64_t id;

	if (elsewhere)
		hierarchy(!v2);
	*s = (struct scene){.first = cgroup_make(mount, "first"),
			    .second = cgroup_make(mount, "second"),
			    .c = child_start(body_work, NULL),
			    .p = open_probes(config)};
	if (elsewhere)
		s->elsewhere = cgroup_make(v2 ? mount_v1 : mount_v2, "elsewhere");
	id = cgroup_id(s->first);
	cgroup_move(s->second, s->c.pid);
	select_cgroups(s->p, &id, 1);
}

static void scene_close(struct scene *s)
{
	probes_free(s->p);
	child_stop(&s->c);
	cgroup_remove(xasprintf("%s/child", s->first));
	cgroup_remove(s->first);
	cgroup_remove(s->second);
	if (s->elsewhere)
		cgroup_remove(s->elsewhere);
}

static void at_once(const void *state,
		    void (*select)(struct probes *p, struct child *c, const char *dirs[2]))
{
	bool v2 = *(const bool *)state, sampled = false;

	for (int i = 0; i < TRIES && !sampled; i++) {
		struct scene s;

		scene_open(&s, v2, false);
		sampled =
			is_sampled_at_once(s.p, &s.c, select, (const char *[]){s.first, s.second});
		scene_close(&s);
	}
	assert_true(sampled);
}

static void whose_cgroup_is_selected_is_sampled_at_once(void **state)
{
	at_once(*state, select_second);
}

static void who_is_moved_to_a_selected_cgroup_is_sampled_at_once(void **state)
{
	at_once(*state, move_to_first);
}

static void who_is_moved_to_a_child_of_one_is_sampled_at_once(void **state)
{
	at_once(*state, move_to_child_of_first);
}

static uint64_t ticks_of(struct scene *s)
{
	struct tally t = {.pid = s->c.pid};

	runs_for(s->c.pid, AT_ONCE_NS);
	drain_into(s->p, &t, 1);
	return t.n;
}

/*
 * A move in the hierarchy that is not used gives the process another css_set, but does not change
 * whether it is selected. The test moves it once before it is selected, and back afterwards.
 */
static void a_move_in_another_hierarchy_is_nobodys_matter(void **state)
{
	bool v2 = *(const bool *)*state, sampled = false;

	for (int i = 0; i < TRIES && !sampled; i++) {
		struct scene s;

		scene_open(&s, v2, true);
		assert_int_equal(ticks_of(&s), 0);
		cgroup_move(s.elsewhere, s.c.pid);
		sampled = is_sampled_at_once(s.p, &s.c, select_second,
					     (const char *[]){s.first, s.second});
		cgroup_move(v2 ? mount_v1 : mount_v2, s.c.pid); /* moves the process back */
		sampled &= ticks_of(&s) >= AT_ONCE_TICKS;
		scene_close(&s);
	}
	assert_true(sampled);
}

/* ---- the counter `additions`: a new css_set may be at the address of an old one ---- */

/*
 * Returns whether the number `additions` of each CPU grew since the last call. Other programs that
 * start containers may also make it grow.
 */
static bool raised(struct probes *p, uint64_t *before)
{
	uint64_t least = UINT64_MAX, most = 0;
	bool r;

	for (int cpu = 0; cpu < p->n_possible_cpus; cpu++) {
		uint64_t n = *(volatile uint64_t *)&p->unselected[cpu].additions;

		least = MIN(least, n);
		most = MAX(most, n);
	}
	r = least > *before;
	*before = most;
	return r;
}

static pid_t born_into(const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = fd};
	pid_t pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return pid;
}

static void additions_are_raised(bool v2)
{
	struct probe_config config = config_of(v2);
	const char *mount = config.hierarchy.mount;
	char *own = cgroup_make(mount, "own"), *other = cgroup_make(mount, "other"), *child;
	struct child c = child_start(body_work, NULL);
	struct probes *p = open_probes(config);
	uint64_t id = cgroup_id(own), before = 0;

	raised(p, &before);
	select_cgroups(p, &id, 1);
	assert_true(raised(p, &before));
	child = cgroup_make(own, "child");
	assert_true(raised(p, &before));
	cgroup_move(other, c.pid);
	raised(p, &before);
	cgroup_move(child, c.pid);
	assert_true(raised(p, &before));
	if (v2) {
		pid_t pid = born_into(child);

		assert_true(pid > 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_true(raised(p, &before));
	}
	child_stop(&c);
	probes_free(p);
	cgroup_remove(child);
	cgroup_remove(own);
	cgroup_remove(other);
}

static void additions_are_raised_v1(void **state)
{
	(void)state;
	additions_are_raised(false);
}

static void additions_are_raised_v2(void **state)
{
	(void)state;
	additions_are_raised(true);
}

int main(void)
{
	static bool v1 = false, v2 = true;
	const struct CMUnitTest tests[] = {
#define BOTH(f)                                                                                    \
	{.name = #f ", v1", .test_func = f, .initial_state = &v1},                                 \
		{.name = #f ", v2", .test_func = f, .initial_state = &v2}
		BOTH(whose_cgroup_is_selected_is_sampled_at_once),
		BOTH(who_is_moved_to_a_selected_cgroup_is_sampled_at_once),
		BOTH(who_is_moved_to_a_child_of_one_is_sampled_at_once),
		BOTH(a_move_in_another_hierarchy_is_nobodys_matter),
#undef BOTH
		cmocka_unit_test(additions_are_raised_v1),
		cmocka_unit_test(additions_are_raised_v2),
	};

	run = getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
