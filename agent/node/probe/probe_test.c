// SPDX-License-Identifier: Apache-2.0
/*
 * On-CPU sampling of real processes: shares, rates, depth, totals, processes, and that nothing
 * stays in the kernel.
 */
#include "node/probe/workload_test.h"

#include <pthread.h>
#include <sched.h>

#include "core.skel.h"
#include "proc.skel.h"

#define LISTED                                                                                     \
	(struct probe_config)                                                                      \
	{                                                                                          \
		.use_list = true, .max_sample_hz = 999                                             \
	}

static void known_shares_and_nobody_else(void **state)
{
	struct child c[2] = {child_start(body_work, NULL), child_start(body_work, NULL)};
	struct probes *p = open_probes(LISTED);
	struct tally t = {.pid = c[0].pid};
	uint64_t short_ns, long_ns, cpu;
	struct probes_stats s;

	(void)state;
	list_pids(p, 1, c, (unsigned[]){999});
	short_ns = c[0].truth->short_ns;
	long_ns = c[0].truth->long_ns;
	cpu = program_cpu_ns(c[0].pid);
	drain_until(p, &t, 1, 1500);
	cpu = program_cpu_ns(c[0].pid) - cpu;
	short_ns = c[0].truth->short_ns - short_ns;
	long_ns = c[0].truth->long_ns - long_ns;

	assert_near("share of work_short", (double)t.in_short / (t.in_short + t.in_long),
		    (double)short_ns / (short_ns + long_ns), 0.05);
	assert_near("samples with both functions", (double)(t.in_short + t.in_long) / t.n, 1, 0.05);
	assert_near("caller found", (double)t.in_loop / t.n, 1, 0.05);
	assert_near("value / CPU time", t.value * 1e3 / cpu, 1, 0.1);
	assert_int_equal(t.lost + t.nameless, 0);

	/* The other process ran as long, and has no samples. */
	assert_int_equal(t.others, 0);
	assert_int_equal(t.seen, 1);
	assert_int_equal(probes_stats(p, &s), 0);
	assert_true(s.filtered > 100);
	assert_int_equal(s.thinned, 0);
	assert_true(s.delivered >= t.n);
	assert_int_equal(s.ticks, s.filtered + s.thinned + s.delivered);
	assert_int_equal(s.node_hz, 999);
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
}

/* Returns the number of samples and records that were lost for this reason. */
static uint64_t drops_of(const char *reason)
{
	return counter_get(counter("podflame_samples_dropped_total", "reason", reason)) +
	       counter_get(counter("podflame_records_dropped_total", "reason", reason));
}

static void add_dropped(const char *name, const char *label, const char *reason, uint64_t n,
			void *arg)
{
	(void)label;
	(void)reason;
	if (streq(name, "podflame_samples_dropped_total"))
		*(uint64_t *)arg += n;
}

static uint64_t samples_dropped(void)
{
	uint64_t n = 0;

	counter_each(add_dropped, &n);
	return n;
}

static uint64_t dropped(void)
{
	static const char *const reasons[] = {"ring_full",    "counts_full", "counts_busy",
					      "scratch_busy", "total_full",  "no_pid",
					      "cgroup_full"};
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		n += drops_of(reasons[i]);
	return n;
}

/*
 * If a process wants fewer samples than the clock ticks, it gets some at random, and each counts
 * more.
 */
static void lower_rates_are_thinned_without_bias(void **state)
{
	struct child c[2] = {child_start(body_work, NULL), child_start(body_work, NULL)};
	struct probes *p = open_probes(LISTED);
	struct tally t[2] = {{.pid = c[0].pid}, {.pid = c[1].pid}};
	uint64_t cpu0, cpu1;
	struct probes_stats s;

	(void)state;
	list_pids(p, 2, c, (unsigned[]){300, 999});
	cpu0 = program_cpu_ns(c[0].pid);
	cpu1 = program_cpu_ns(c[1].pid);
	drain_until(p, t, 2, 1000);
	cpu0 = program_cpu_ns(c[0].pid) - cpu0;
	cpu1 = program_cpu_ns(c[1].pid) - cpu1;
	assert_near("thinned: value / CPU time", t[0].value * 1e3 / cpu0, 1, 0.15);
	assert_near("full: value / CPU time", t[1].value * 1e3 / cpu1, 1, 0.1);
	assert_int_equal(t[0].value, t[0].n * 3333);
	assert_int_equal(t[1].value, t[1].n * 1001);
	assert_int_equal(probes_stats(p, &s), 0);
	assert_true(s.thinned > 1000);
	assert_int_equal(dropped(), 0);
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
}

/* ---- depth ---- */

IN_SECTION(pf_loop) static unsigned recurse(unsigned n)
{
	volatile unsigned below = 0;

	if (n == 0) {
		for (volatile bool stop = false; !stop;)
			spin(1000);
		return 0;
	}
	below = recurse(n - 1) + 1;
	return below;
}

static void body_deep(struct truth *t)
{
	(void)t;
	recurse(1000);
}

static void body_shallow(struct truth *t)
{
	(void)t;
	recurse(299);
}

static void deep_stacks_are_walked_and_cut_visibly(void **state)
{
	struct child c[2] = {child_start(body_deep, NULL), child_start(body_shallow, NULL)};
	struct probes *p = open_probes(LISTED);
	struct tally t[2] = {{.pid = c[0].pid}, {.pid = c[1].pid}};

	(void)state;
	list_pids(p, 2, c, (unsigned[]){199, 199});
	drain_until(p, t, 2, 20);
	while (t[1].n < 5)
		drain_until(p, t, 2, t[0].n + 5);
	assert_int_equal(t[0].deepest, PF_MAX_USER_FRAMES);
	assert_string_equal(t[0].deepest_end, "truncated");
	assert_true(t[1].deepest > 300 && t[1].deepest < 400);
	assert_true(!t[1].deepest_end || strcmp(t[1].deepest_end, "truncated"));
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
}

/* ---- kernel stacks ---- */

IN_SECTION(pf_loop) static void read_zeros(void)
{
	static char zeros[1 << 20];
	int fd = open("/dev/zero", O_RDONLY);

	while (read(fd, zeros, sizeof(zeros)) > 0)
		;
}

static void body_kernel(struct truth *t)
{
	(void)t;
	read_zeros();
}

static void kernel_time_has_both_stacks(void **state)
{
	struct child c = child_start(body_kernel, NULL);
	struct probes *p = open_probes(LISTED);
	struct tally t = {.pid = c.pid};

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	drain_until(p, &t, 1, 300);
	assert_true(t.with_kernel > t.n / 2);
	assert_int_equal(t.lost, 0);
	probes_free(p);
	child_stop(&c);
}

/* ---- processes ---- */

static void body_exec(struct truth *t)
{
	while (!t->ready)
		spin(10);
	execl("/bin/sh", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done", NULL);
}

static void processes_are_followed(void **state)
{
	struct child c = child_start(body_exec, NULL);
	struct probes *p = open_probes(LISTED);
	struct tally t = {.pid = c.pid};
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	uint32_t before;

	(void)state;
	list_pids(p, 1, &c, (unsigned[]){999});
	drain_until(p, &t, 1, 10);
	assert_int_equal(t.seen, 1);
	assert_int_equal(t.last_proc.tgid_root, c.pid);
	assert_int_equal(t.last_proc.tgid_own, c.pid);
	assert_true(t.last_proc.start_boottime_ns - c.start_ns < PF_USER_HZ_NS);
	before = t.last_proc.exec_id;
	c.truth->ready = 1;
	while (!t.exits && now_mono_ns() < deadline) {
		nap(50);
		drain_into(p, &t, 1);
	}
	assert_int_equal(t.execs, 1);
	/* 2 or 3: the process is reported once more if a tick comes during the exec. */
	assert_in_range(t.seen, 2, 3);
	assert_int_equal(t.exits, 1);
	assert_true(t.last_proc.exec_id > before);
	assert_string_equal(t.last_proc.comm, "sh");
	probes_free(p);
	child_stop(&c);
}

static void another_process_of_that_pid_is_not_listed(void **state)
{
	struct child c[2] = {child_start(body_work, NULL), child_start(body_work, NULL)};
	struct probes *p = open_probes(LISTED);
	struct tally t[2] = {{.pid = c[1].pid}, {.pid = c[0].pid}};

	(void)state;
	c[0].start_ns += PF_USER_HZ_NS; /* the agent's list has an earlier process with this PID */
	list_pids(p, 2, c, (unsigned[]){999, 999});
	drain_until(p, t, 2, 200);
	assert_int_equal(t[1].n, 0);
	probes_free(p);
	child_stop(&c[0]);
	child_stop(&c[1]);
}

/*
 * Moves this process to another CPU. In an LRU map, each CPU keeps the entries that were added last
 * on it, even if other CPUs need room. So, to evict an entry, a test must add entries on all CPUs.
 */
static void go_to_cpu(const cpu_set_t *all, unsigned number)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0, left = (int)number % CPU_COUNT(all); cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, all) && left-- == 0)
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

/*
 * The map of processes is full of entries that were added later. If the process is seen again, it
 * is reported again, once.
 */
static void who_made_room_is_told_of_again(void **state)
{
	struct child c = child_start(body_work, NULL);
	struct probes *p = open_probes(LISTED);
	int procs = bpf_map__fd(p->core->maps.procs);
	uint32_t room = bpf_map__max_entries(p->core->maps.procs), n = 0;
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC, before;
	struct tally t = {.pid = c.pid};
	struct {
		uint64_t start_boottime_ns, tgid_root;
	} key, other = {.start_boottime_ns = 1};
	struct raw_proc first;
	char value[64] = {0};
	cpu_set_t cpus;
	int status;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	list_pids(p, 1, &c, (unsigned[]){999});
	drain_until(p, &t, 1, 10);
	assert_int_equal(t.seen, 1);
	first = t.last_proc;
	key.start_boottime_ns = first.start_boottime_ns;
	key.tgid_root = first.tgid_root;
	assert_int_equal(kill(c.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(c.pid, &status, WUNTRACED), c.pid);
	assert_int_equal(bpf_map__key_size(p->core->maps.procs), sizeof(key));
	assert_true(bpf_map__value_size(p->core->maps.procs) <= sizeof(value));
	while (!bpf_map_lookup_elem(procs, &key, value)) {
		memset(value, 0, sizeof(value));
		other.tgid_root = (1u << 31) + n;
		if (n % 256 == 0)
			go_to_cpu(&cpus, n / 256);
		assert_true(n++ < 256 * room);
		/* the second write makes the map keep the entry for longer */
		for (int i = 0; i < 2; i++)
			assert_int_equal(bpf_map_update_elem(procs, &other, value, BPF_ANY), 0);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
	assert_true(n > room / 2); /* the entry was not evicted before the map was half full */
	kill(c.pid, SIGCONT);
	while (t.seen < 2 && now_mono_ns() < deadline) {
		nap(50);
		drain_into(p, &t, 1);
	}
	before = t.n;
	drain_until(p, &t, 1, before + 200);
	assert_int_equal(t.seen, 2);
	assert_int_equal(t.last_proc.tgid_root, first.tgid_root);
	assert_int_equal(t.last_proc.start_boottime_ns, first.start_boottime_ns);
	assert_int_equal(t.last_proc.exec_id, first.exec_id);
	assert_int_equal(t.lost + t.nameless, 0);
	probes_free(p);
	child_stop(&c);
}

/* ---- probe_config.total ---- */

static void *thread_body(void *arg)
{
	prctl(PR_SET_NAME, "pf-thread");
	body_work(arg);
	return NULL;
}

static void body_threads(struct truth *t)
{
	struct truth own = {};
	pthread_t thread;

	pthread_create(&thread, NULL, thread_body, t);
	body_work(&own);
}

static void total_counts_all_by_name(void **state)
{
	struct child c = child_start(body_threads, "pf-leader");
	struct probe_config config = LISTED;
	uint64_t cpu, value = 0, deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	bool main_row = false, thread_row = false;
	struct probes_stats s;
	struct probes *p;

	(void)state;
	config.total = true;
	p = open_probes(config);
	cpu = program_cpu_ns(c.pid);
	while (value < 1500000 && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		nap(200);
		assert_int_equal(probes_drain(p, true, &d), 0);
		/* only totals, because nothing is selected */
		assert_int_equal(d->n_samples, 0);
		assert_int_equal(d->n_stacks, 0);
		for (size_t i = 0; i < d->n_totals; i++) {
			const struct raw_total *t = &d->totals[i];

			if (strcmp(t->leader_comm, "pf-leader"))
				continue;
			value += t->value;
			main_row |= t->main_thread && streq(t->thread_comm, "pf-leader");
			thread_row |= !t->main_thread && streq(t->thread_comm, "pf-thread");
		}
		sample_drain_free(d);
	}
	cpu = program_cpu_ns(c.pid) - cpu;
	assert_true(main_row && thread_row);
	assert_near("Total / CPU time", value * 1e3 / cpu, 1, 0.2);
	assert_int_equal(probes_stats(p, &s), 0);
	assert_int_equal(s.node_hz, 99);
	assert_int_equal(s.crossed, 0);
	probes_free(p);
	child_stop(&c);
}

static void cpus_are_kept_apart_on_request(void **state)
{
	struct child c = child_start(body_work, NULL);
	struct probe_config config = LISTED;
	uint64_t n = 0, deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct probes *p;

	(void)state;
	config.per_cpu = true;
	p = open_probes(config);
	list_pids(p, 1, &c, (unsigned[]){999});
	while (n < 50 && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		nap(50);
		assert_int_equal(probes_drain(p, true, &d), 0);
		for (size_t i = 0; i < d->n_samples; i++) {
			assert_true(d->samples[i].cpu < sysconf(_SC_NPROCESSORS_CONF));
			n += d->samples[i].n;
		}
		sample_drain_free(d);
	}
	assert_true(n >= 50);
	probes_free(p);
	child_stop(&c);
}

/* ---- losses ---- */

IN_SECTION(pf_loop) static unsigned recurse_then_return(unsigned n)
{
	volatile unsigned below = 0;

	if (n == 0)
		spin(30);
	else
		below = recurse_then_return(n - 1) + 1;
	return below;
}

static void body_many_stacks(struct truth *t)
{
	for (unsigned seed = 1; !t->ready;)
		recurse_then_return(rand_r(&seed) % 400);
}

/*
 * With a ring of one page and a map of few entries, every sample is delivered or counted as lost.
 */
static void what_does_not_fit_is_counted(void **state)
{
	struct child c = child_start(body_many_stacks, NULL);
	struct probe_config config = LISTED;
	struct tally t = {.pid = c.pid};
	uint64_t full, delivered = 0, before = samples_dropped();
	uint64_t deadline = now_mono_ns() + 60 * NSEC_PER_SEC;
	struct probes_stats s;
	struct probes *p;
	struct drain *d;

	(void)state;
	config.ring_bytes = 4096;
	config.count_entries = 16;
	p = open_probes(config);
	list_pids(p, 1, &c, (unsigned[]){999});
	while (!drops_of("counts_full") || !drops_of("ring_full")) {
		nap(200);
		drain_into(p, &t, 1);
	}
	assert_true(t.lost > 0);
	assert_int_equal(probes_list(p, NULL, 0), 0); /* from now on nothing ticks */
	drain_into(p, &t, 1);
	/* each drain reports its own losses */
	assert_int_equal(t.dropped, samples_dropped() - before);
	full = drops_of("counts_full") + drops_of("counts_busy");
	assert_int_equal(probes_stats(p, &s), 0);
	delivered = t.n;
	assert_int_equal(s.delivered, delivered);
	assert_int_equal(s.ticks, s.filtered + s.delivered + full);
	/*
	 * If a record was lost in one generation, the kernel sends it again in a later one. So no
	 * process is missing for ever. The ring has room for one deep stack in each drain.
	 */
	list_pids(p, 1, &c, (unsigned[]){10});
	do {
		assert_true(now_mono_ns() < deadline);
		t.lost = t.n = 0;
		drain_until(p, &t, 1, 5);
	} while (t.lost == t.n);
	assert_int_equal(probes_drain(p, false, &d), 0);
	sample_drain_free(d);
	probes_free(p);
	child_stop(&c);
}

/* ---- nothing stays in the kernel ---- */

static bool program_lives(uint32_t id)
{
	int fd = bpf_prog_get_fd_by_id(id);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static uint32_t id_of(const struct bpf_program *prog)
{
	struct bpf_prog_info info = {};
	uint32_t n = sizeof(info);

	assert_int_equal(bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &n), 0);
	return info.id;
}

static void idle_detaches_and_free_unloads(void **state)
{
	struct child c = child_start(body_work, NULL);
	struct probes *p = open_probes(LISTED);
	uint64_t deadline = now_mono_ns() + 120 * NSEC_PER_SEC;
	uint32_t ids[] = {
		id_of(bpf_object__find_program_by_name(p->events[EVENT_ON_CPU].obj, "pf_oncpu")),
		id_of(p->proc->progs.pf_exec), id_of(p->proc->progs.pf_exit)};
	struct probes_stats s;
	unsigned idle_links;
	bool lives = true;

	(void)state;
	assert_int_equal(probes_stats(p, &s), 0);
	assert_int_equal(s.n_programs, 6);
	idle_links = s.n_links;
	list_pids(p, 1, &c, (unsigned[]){99});
	assert_int_equal(probes_stats(p, &s), 0);
	assert_true(s.n_links > idle_links);
	assert_int_equal(s.node_hz, 99);
	assert_int_equal(probes_list(p, NULL, 0), 0);
	assert_int_equal(probes_stats(p, &s), 0);
	assert_int_equal(s.n_links, idle_links);
	assert_int_equal(s.node_hz, 0);
	probes_free(p);
	while (lives && now_mono_ns() < deadline) {
		lives = false;
		for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
			lives |= program_lives(ids[i]);
		nap(10);
	}
	assert_false(lives);
	child_stop(&c);
}

/* The argument is a pattern of test names such as "total*"; without it, all tests run. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_shares_and_nobody_else),
		cmocka_unit_test(lower_rates_are_thinned_without_bias),
		cmocka_unit_test(deep_stacks_are_walked_and_cut_visibly),
		cmocka_unit_test(kernel_time_has_both_stacks),
		cmocka_unit_test(processes_are_followed),
		cmocka_unit_test(another_process_of_that_pid_is_not_listed),
		cmocka_unit_test(who_made_room_is_told_of_again),
		cmocka_unit_test(total_counts_all_by_name),
		cmocka_unit_test(cpus_are_kept_apart_on_request),
		cmocka_unit_test(what_does_not_fit_is_counted),
		cmocka_unit_test(idle_detaches_and_free_unloads),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
