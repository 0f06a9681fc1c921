// SPDX-License-Identifier: Apache-2.0
/*
 * What sampling costs on this machine: nanoseconds a sample by stack depth, what a filtered-out
 * tick costs in addition to an empty program, and how much slower a process runs that is not
 * selected. It prints one JSON object a line, and needs root.
 */
#include "node/probe/bench_probes.h"
#include "node/probe/rows_test.h"

#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.skel.h"
#include "proc.skel.h"

#define HZ	  999
#define PAIRS	  51
#define WINDOW_MS 120
#define FILTERED  15 /* rounds of the bench of filtered-out ticks */
#define ROUNDS	  5
#define PAGE_ROWS 1000 /* rows of one page of a table, as in a real library; at most 16,384 */

static const unsigned depths[] = {8, 33, 128, 500};

static double ns_a_frame(const double ns[ARRAY_SIZE(depths)])
{
	size_t last = ARRAY_SIZE(depths) - 1;

	return (ns[last] - ns[0]) / (depths[last] - depths[0]);
}

/* ---- workloads ---- */

static volatile uint64_t *shared; /* units of work done */

static __attribute__((noinline)) unsigned work_at_depth(unsigned depth)
{
	volatile unsigned below = 0;

	if (depth > 1) {
		below = work_at_depth(depth - 1) + 1;
		return below;
	}
	for (volatile bool stop = false; !stop;) {
		for (volatile int i = 0; i < 1000; i++)
			;
		shared[0]++;
	}
	return 0;
}

static pid_t start(unsigned depth)
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork", errno);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work_at_depth(depth);
	}
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- probes on this program's cgroup, or on one without processes ---- */

/* ---- an empty program on the same clock: the cost of the kernel itself ---- */

static int empty_program(void)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "pf_empty", "GPL", insns, 2, NULL);

	if (fd < 0)
		bench_die("empty program", fd);
	return fd;
}

static int attach_empty(int prog, int cpu)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.size = sizeof(attr),
		.sample_period = NSEC_PER_SEC / HZ,
		.exclude_idle = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 || bpf_link_create(prog, fd, BPF_PERF_EVENT, NULL) < 0)
		bench_die("empty program's event", errno);
	return fd;
}

static int oncpu_fd(struct probes *p)
{
	return bpf_program__fd(
		bpf_object__find_program_by_name(p->events[EVENT_ON_CPU].obj, "pf_oncpu"));
}

/*
 * Both programs tick at the same time on the same CPUs, so caches and other processes are the same
 * for both.
 */
static double bench_filtered(struct probes *p, const struct container_filter *nobody)
{
	int prog = empty_program(), ours = oncpu_fd(p);
	double more[FILTERED], none[FILTERED], all[FILTERED];
	pid_t busy = start(8);

	if (probes_filter(p, nobody, 1))
		bench_die("filter", errno);
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		attach_empty(prog, cpu);
	bench_nap(500);
	for (int i = 0; i < FILTERED; i++) {
		struct cost a = program_cost(prog), b = program_cost(ours);

		bench_nap(400);
		none[i] = ns_a_run(a, program_cost(prog));
		all[i] = ns_a_run(b, program_cost(ours));
		more[i] = all[i] - none[i];
	}
	bench_rounds("probe.empty", none, FILTERED, "ns/tick", "", "BPF run time of nothing");
	bench_rounds("probe.filtered_out", more, FILTERED, "ns/tick", "<= 40",
		     "more than an empty program on the same event");
	stop(busy);
	close(prog);
	return bench_median(all, FILTERED);
}

/* Returns the program's time for each delivered sample, without the time of filtered-out ticks. */
static double ns_a_sample(struct probes *p, double filtered_ns)
{
	struct cost c0 = program_cost(oncpu_fd(p)), c1;
	struct probes_stats s0, s1;
	struct drain *d = NULL;

	probes_stats(p, &s0);
	bench_nap(600);
	if (!probes_drain(p, true, &d))
		sample_drain_free(d);
	c1 = program_cost(oncpu_fd(p));
	probes_stats(p, &s1);
	return ((double)(c1.ns - c0.ns) - filtered_ns * (s1.filtered - s0.filtered)) /
	       MAX(s1.delivered - s0.delivered, 1ul);
}

static double report_sample(struct probes *p, double filtered_ns, const char *name,
			    const char *note)
{
	double ns[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		ns[i] = ns_a_sample(p, filtered_ns);
	bench_rounds(name, ns, ROUNDS, "ns/sample", "", note);
	return ns[ROUNDS / 2];
}

static void sample_only(struct probes *p, const struct container_filter *f, pid_t pid)
{
	bench_join(pid);
	if (probes_filter(p, f, 1))
		bench_die("filter", errno);
	bench_nap(200);
}

static double bench_depth(struct probes *p, const struct container_filter *f, unsigned depth,
			  double filtered_ns)
{
	_cleanup_free_ char *name = xasprintf("probe.sample_depth_%u", depth);
	pid_t busy = start(depth);
	double ns;

	sample_only(p, f, busy);
	ns = report_sample(p, filtered_ns, name, "by frame pointers");
	stop(busy);
	return ns;
}

static void bench_depths(struct probes *p, const struct container_filter *f, double filtered_ns)
{
	double ns[ARRAY_SIZE(depths)];

	for (size_t i = 0; i < ARRAY_SIZE(depths); i++)
		ns[i] = bench_depth(p, f, depths[i], filtered_ns);
	bench_report("probe.sample_frame", ns_a_frame(ns), "ns/frame", "by frame pointers");
}

/* ---- stacks of the same depths, walked with unwind tables ---- */

static void rows_work(void)
{
	for (volatile bool end = false; !end;)
		;
}

/*
 * The process changes its mappings all the time, as a program does that allocates. So the walk
 * looks up the mapping for each sample anew. In the second case there are 60,000 mappings.
 */
static void rows_work_changing(void)
{
	for (volatile bool end = false; !end;) {
		void *m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (volatile int i = 0; i < 100000; i++)
			;
		munmap(m, 4096);
	}
}

static void rows_work_in_60000(void)
{
	for (int i = 0; i < 60000; i++) /* two protections in turn, or the kernel merges them */
		(void)mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	rows_work_changing();
}

static pid_t start_rows(unsigned depth, void (*work)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork", errno);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pf_rows_enter(depth, work);
	}
	return pid;
}

/*
 * Waits until a drain reports the process, reads its mappings, and gives them to the kernel with
 * the number of executable pages that were mapped when they were read.
 */
static void rows_process_of(struct probes *p, pid_t pid)
{
	uint64_t deadline = now_mono_ns() + 20 * NSEC_PER_SEC;
	struct mappings *m = NULL;

	while (!m && now_mono_ns() < deadline) {
		struct drain *d = NULL;

		if (probes_drain(p, false, &d))
			break;
		for (size_t i = 0; i < d->n_procs && !m; i++)
			if ((pid_t)d->procs[i].tgid == pid &&
			    !proc_mappings_read(
				    (struct process_id){d->procs[i].start_boottime_ns, pid},
				    d->procs[i].exec_id, &m))
				rows_process(p, &d->procs[i], m->exec_pages);
		sample_drain_free(d);
		bench_nap(20);
	}
	if (!m)
		bench_die("process's mappings", ENOENT);
	proc_mappings_unref(m);
}

static double bench_rows_of(struct probes *p, const struct container_filter *f, double filtered_ns,
			    const char *name, pid_t busy, const char *note)
{
	double ns;

	sample_only(p, f, busy);
	rows_process_of(p, busy);
	ns = report_sample(p, filtered_ns, name, note);
	stop(busy);
	return ns;
}

static void bench_rows(struct probes *p, const struct container_filter *f, double filtered_ns)
{
	double ns[ARRAY_SIZE(depths)];

	rows_install_among(p, PAGE_ROWS);
	for (size_t i = 0; i < ARRAY_SIZE(depths); i++) {
		_cleanup_free_ char *name = xasprintf("probe.rows_depth_%u", depths[i]);

		ns[i] = bench_rows_of(p, f, filtered_ns, name, start_rows(depths[i], rows_work),
				      "by unwind tables; goal at depth 33: 7000");
	}
	bench_rows_of(p, f, filtered_ns, "probe.rows_changing", start_rows(33, rows_work_changing),
		      "depth 33; its mappings have changed since the last sample, each time");
	bench_rows_of(p, f, filtered_ns, "probe.rows_changing_60000",
		      start_rows(33, rows_work_in_60000), "the same of 60,000 mappings");
	bench_report("probe.rows_frame", ns_a_frame(ns), "ns/frame",
		     "by unwind tables; goal 100, the best peer 400");
}

/* ---- how many instructions the verifier checked ---- */

static void bench_verified(struct bpf_object *o)
{
	struct bpf_program *prog;

	bpf_object__for_each_program(prog, o)
	{
		_cleanup_free_ char *name = xasprintf("probe.verified_%s", bpf_program__name(prog));
		struct bpf_prog_info info = {};
		uint32_t n = sizeof(info);

		if (bpf_program__fd(prog) >= 0 &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &n))
			bench_report(name, info.verified_insns, "instructions", "limit 1000000");
	}
}

/* ---- how much slower a process runs that is not selected ---- */

static double units_per_cpu_ns(pid_t pid)
{
	uint64_t units = shared[0], ns;
	struct timespec t0, t1;
	clockid_t clock;

	clock_getcpuclockid(pid, &clock);
	clock_gettime(clock, &t0);
	bench_nap(WINDOW_MS);
	clock_gettime(clock, &t1);
	ns = (t1.tv_sec - t0.tv_sec) * NSEC_PER_SEC + t1.tv_nsec - t0.tv_nsec;
	return (double)(shared[0] - units) / MAX(ns, 1ul);
}

static void bench_slowdown(struct probes *p, struct container_filter nobody)
{
	double ratio[PAIRS];
	pid_t busy = start(8);

	nobody.sample_hz = 199;
	for (int i = 0; i < PAIRS; i++) {
		double off, on;

		probes_filter(p, NULL, 0);
		off = units_per_cpu_ns(busy);
		probes_filter(p, &nobody, 1);
		on = units_per_cpu_ns(busy);
		ratio[i] = (off / on - 1) * 100;
	}
	stop(busy);
	bench_median(ratio, PAIRS); /* sorts the ratios; the extremes come from other processes */
	bench_rounds("probe.unselected_slowdown_199hz", ratio + PAIRS / 4, PAIRS / 2 + 1, "percent",
		     "", "no target, paired windows, their middle half");
}

/* ---- how much memory the probes need ---- */

/*
 * Returns the memory of all maps, which the kernel charges to the agent. A shared map has several
 * descriptors, and is counted once.
 */
static uint64_t map_bytes(void)
{
	static char counted[1 << 20];
	uint64_t bytes = 0;

	for (int fd = 3; fd < 256; fd++) {
		_cleanup_free_ char *path = xasprintf("/proc/self/fdinfo/%d", fd), *info = NULL;
		const char *id, *size;
		unsigned n;

		if (file_read(-1, path, 65536, &info, NULL))
			continue;
		id = strstr(info, "map_id:");
		size = strstr(info, "memlock:");
		n = id ? strtoul(id + strlen("map_id:"), NULL, 10) : 0;
		if (!size || !n || n >= sizeof(counted) || counted[n]++)
			continue;
		bytes += strtoull(size + strlen("memlock:"), NULL, 10);
	}
	return bytes;
}

static void bench_memory(void)
{
	uint64_t before = now_mono_ns();
	struct container_filter f;
	struct probes *p = bench_probes(EVENT_ON_CPU, HZ, &f);

	bench_report("probe.load", (now_mono_ns() - before) / 1e6, "ms", "start of the agent");
	bench_report("probe.maps_idle", map_bytes() / 1024.0, "KiB",
		     "kernel memory, nobody selected");
	probes_free(p);
}

/* Loads the programs of all events: an event's programs are loaded when a target first wants it. */
static void bench_programs(struct probes *p)
{
	struct container_filter all = {
		.cgroup_id = 1, .event_mask = (1u << _EVENT_MAX) - 1, .sample_hz = HZ};

	probes_filter(p, &all, 1);
	bench_verified(p->events[EVENT_ON_CPU].obj);
	bench_verified(p->events[EVENT_OFF_CPU].obj);
	bench_verified(p->events[EVENT_MEM_ALLOC].obj);
	bench_verified(p->events[EVENT_HBM_ALLOC].obj);
	bench_verified(p->events[EVENT_ON_GPU].obj);
	bench_verified(p->events[EVENT_RDMA].obj);
	bench_verified(p->events[EVENT_RDMA_LATENCY].obj);
	bench_verified(p->proc->obj);
}

/*
 * With the argument "verified" it only prints how much this kernel's verifier checked
 * (e2e/kernels).
 */
int main(int argc, char **argv)
{
	struct container_filter own,
		nobody = {.cgroup_id = 1, .event_mask = 1u << EVENT_ON_CPU, .sample_hz = HZ};
	struct probes *p;
	double filtered_ns;
	int stats;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		bench_die("mmap", errno);
	bench_memory();
	p = bench_probes(EVENT_ON_CPU, HZ, &own);
	if (argc > 1 && streq(argv[1], "verified")) {
		bench_programs(p);
		probes_free(p);
		return 0;
	}
	bench_slowdown(p, nobody);
	stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	if (stats < 0)
		bench_die("BPF statistics", stats);
	filtered_ns = bench_filtered(p, &nobody);
	bench_depths(p, &own, filtered_ns);
	bench_rows(p, &own, filtered_ns);
	close(stats);
	bench_programs(p);
	probes_free(p);
	bench_nap(50);
	bench_leave();
	return 0;
}
