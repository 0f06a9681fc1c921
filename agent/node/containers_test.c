/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers under stress: a storm (crash loops, forks and changes of cgroups at the same time),
 * PIDs that are used again, each event only for the containers that asked for it, and nothing kept
 * for containers that have ended. The numbers in the names of the tests are those of
 * docs/containers.md.
 */
#include "node/testcontainers.h"

#include <dirent.h>
#include <linux/bpf.h>

/* ---- storms ---- */

static void crash_loop(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "10", .late_ms = k % 2 ? 0 : 2};

	for (;;)
		tenant_live(t, k, k, &w);
}

/* A crash loop at 1 Hz. */
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

/*
 * Starts one container again and again. Its cgroup and that of its pod are made again under the
 * same names.
 */
static void same_name(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "30"};
	_cleanup_free_ char *dir = tenant_dir(t, k, k, 0);
	_cleanup_free_ char *pod = xstrndup(dir, (size_t)(strrchr(dir, '/') - dir));

	for (;;) {
		tenant_mkdirs(dir);
		t->shared->cpu_ns[k] += tenant_wait(tenant_start(t, k, dir, &w));
		tenant_rmdir(dir);
		tenant_rmdir(pod);
		t->shared->ends[k]++;
	}
}

/*
 * Starts processes in a running container from outside, as kubectl exec does. Each one first runs
 * code of runc.
 */
static void execs(struct tenants *t, unsigned k)
{
	const struct tenant_work w = {.work = "burn", .amount = "10", .late_ms = 5};
	_cleanup_free_ char *dir = tenant_dir(t, k, k, 0);

	for (;;) {
		tenant_wait(tenant_start(t, k, dir, &w));
		t->shared->ends[k]++;
	}
}

/* Starts a process that moves to and fro between its own cgroup and the next one. */
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

/*
 * Containers 0 to 3 are steady, 10 and 12 crash, 14 has execs, 16 to 18 have a process that hops
 * between cgroups, 20 forks, 24 is restarted. Their odd neighbours are not selected.
 */
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
	{.k = 24, .pod = 24, .arm = true},
};

static bool storm_seen(struct fixture *f)
{
	static const unsigned steady[] = {0, 2, 16, 17, 18, 22};
	const struct tenants_shared *s = f->t.shared;
	unsigned scale = is_long() ? 20 : 1;

	for (size_t i = 0; i < ARRAY_SIZE(steady); i++)
		if (n_of(steady[i], EVENT_ON_CPU) < 50 * scale)
			return false;
	if (n_of(24, EVENT_ON_CPU) < 20 * scale || s->ends[24] < 20 * scale || s->ends[25] < 20)
		return false;
	return s->ends[10] >= 20 * scale && s->ends[11] >= 20 * scale && s->ends[12] >= 3 * scale &&
	       s->ends[14] >= 20 * scale && s->ends[20] && s->ends[21];
}

/*
 * All at the same time: crash loops at 1 Hz and as fast as possible, cgroups that are made again
 * under their old names, execs, thousands of forks, processes that change their cgroup, and a
 * container of a selected pod that is not selected itself. Beside each runs one of its kind that is
 * not selected.
 */
static void test_storm_89_90_91_92_96_105_120_121(void **state)
{
	struct fixture *f = *state;
	uint64_t helpers = excluded("runtime_helper");

	NEEDS(f);
	tenant_run(&f->t, 0, 0, &steadily);
	tenant_run(&f->t, 1, 1, &steadily);
	tenant_run(&f->t, 2, 2, &steadily);
	tenant_run(&f->t, 2, 3, &steadily); /* a second container of the same pod */
	tenant_run(&f->t, 14, 14, &(struct tenant_work){.work = "burn", .amount = "1"});
	tenant_run(&f->t, 15, 15, &(struct tenant_work){.work = "burn", .amount = "1"});
	hop(&f->t, 16);
	hop(&f->t, 18);
	hop(&f->t, 22);
	tenants_play(&f->t, crash_loop, 10);
	tenants_play(&f->t, crash_loop, 11);
	tenants_play(&f->t, slow_crash_loop, 12);
	tenants_play(&f->t, slow_crash_loop, 13);
	tenants_play(&f->t, same_name, 24);
	tenants_play(&f->t, same_name, 25);
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

/* ---- PIDs that are used again ---- */

/*
 * Starts three containers in turns, and each process gets the same PID. One container is not
 * selected; the other two have different programs.
 */
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
			continue; /* another process has this PID now */
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

/* ---- each event for the containers that asked for it ---- */

static const struct tenant_wish event_wishes[] = {
	{.k = 0, .pod = 0, .event_mask = 1u << EVENT_ON_CPU},
	{.k = 1, .pod = 1, .event_mask = 1u << EVENT_OFF_CPU},
	{.k = 2, .pod = 2, .event_mask = 1u << EVENT_MEM_ALLOC},
	{.k = 3, .pod = 3, .event_mask = 1u << EVENT_MEM_INUSE},
	{.k = 4, .pod = 4, .event_mask = ALL_EVENTS},
	{.k = 6, .pod = 6, .event_mask = ALL_EVENTS},
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

/*
 * Containers with each event alone, with all events, and with none. Also all events of a process
 * that moves to and from a cgroup that is not selected.
 */
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

/* ---- nothing is kept for ended containers ---- */

struct holdings {
	unsigned n_fds, n_entries; /* entries: in all hash maps */
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
	    str_has_prefix(info.name, "counts_")) /* this map is emptied every second */
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

/* The smallest holdings that were seen before the number of ended containers was until_ends. */
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
	/*
	 * At any moment the number of living containers may differ by one or two, with eight
	 * descriptors each. If each container left one thing behind at its end, there would be 2 n
	 * more.
	 */
	assert_true(late.n_fds <= early.n_fds + n / 2);
	assert_true(late.n_entries <= early.n_entries + n / 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(test_storm_89_90_91_92_96_105_120_121),
		T(test_pid_reuse_104),
		T(test_every_event_120_125),
		T(test_crash_loop_keeps_nothing_92),
	};

	return run_group("node/containers", tests, ARRAY_SIZE(tests), argc, argv);
}
