// SPDX-License-Identifier: Apache-2.0
/*
 * What memory events cost the process that they look at: CPU time a malloc and free of it, in pairs of windows with
 * and without probes. One JSON object a line. Needs root.
 */
#include "lib/base/bench.h"
#include "node/probe/sites_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOWS	  15
#define WINDOW_MS 60
#define ALLOC	  (1u << EVENT_MEM_ALLOC)
#define INUSE	  (1u << EVENT_MEM_INUSE)

static volatile uint64_t *pairs; /* shared: done by the process */

static __attribute__((noinline)) void allocate(void)
{
	static void *volatile p;

	for (int i = 0; i < 1000; i++) {
		p = malloc(100);
		free(p);
	}
	*pairs += 1000;
}

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork", errno);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			allocate();
	}
	return pid;
}

static double ns_a_pair(pid_t pid)
{
	uint64_t n = *pairs;
	struct timespec t0, t1;
	clockid_t clock;

	clock_getcpuclockid(pid, &clock);
	clock_gettime(clock, &t0);
	bench_nap(WINDOW_MS);
	clock_gettime(clock, &t1);
	return ((double)(t1.tv_sec - t0.tv_sec) * NSEC_PER_SEC + t1.tv_nsec - t0.tv_nsec) /
	       MAX(*pairs - n, 1ul);
}

/* ---- the process, as the kernel knows it ---- */

static struct probes *open_probes(void)
{
	struct probe_config c = {.use_list = true, .max_sample_hz = 99};
	struct field_error err = {};
	struct probes *p;

	if (probes_new(&c, &p, &err)) {
		fprintf(stderr, "memory_bench: %s: %s\n", err.path, err.reason);
		exit(1);
	}
	return p;
}

/* /proc/PID/stat, field 22, in USER_HZ. */
static uint64_t start_of(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/stat", pid), *text = NULL;
	char *s;

	if (file_read(-1, path, 4096, &text, NULL) || !(s = strrchr(text, ')')))
		bench_die(path, errno);
	for (int i = 0; i < 20 && s; i++)
		s = strchr(s + 1, ' ');
	return s ? strtoull(s, NULL, 10) * PF_USER_HZ_NS : 0;
}

static void ask_for(struct probes *p, pid_t pid, unsigned events, uint64_t bytes)
{
	struct listed_process l = {
		.tgid = pid,
		.start_boottime_ns = start_of(pid),
		.event_mask = events,
		.settings = {.alloc_sample_bytes = bytes, .inuse_sample_bytes = bytes},
	};
	int r = probes_list(p, &l, 1);

	if (r)
		bench_die("probes_list", r);
}

static struct raw_proc known(struct probes *p, pid_t pid)
{
	struct raw_proc found = {};

	while (!found.tgid) {
		struct drain *d = NULL;

		if (probes_announce(p) || probes_drain(p, false, &d))
			bench_die("announce", errno);
		for (size_t i = 0; i < d->n_procs; i++)
			if ((pid_t)d->procs[i].tgid == pid)
				found = d->procs[i];
		drain_free(d);
	}
	return found;
}

/* ---- rows ---- */

struct bench {
	struct probes *p;
	pid_t pid;
	struct raw_proc proc;
	struct probed probed;
};

static struct attached *attach(struct bench *b, unsigned events)
{
	struct attached *a = NULL;
	size_t refused;
	int r;

	b->probed.proc.event_mask = events;
	b->probed.proc.exec_id = b->proc.exec_id;
	r = probes_attach(b->p, b->pid, b->proc.start_boottime_ns, &b->probed.proc, &b->probed.file,
			  1, &a, &refused);
	if (r)
		bench_die("probes_attach", r);
	return a;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, WINDOWS, sizeof(v[0]), by_value);
	return v[WINDOWS / 2];
}

static void row(struct bench *b, const char *name, unsigned events, uint64_t bytes,
		const char *compared_with)
{
	double ns[WINDOWS];

	ask_for(b->p, b->pid, events, bytes);
	for (int i = 0; i < WINDOWS; i++) {
		struct attached *a = attach(b, events);
		struct drain *d = NULL;

		ns[i] = ns_a_pair(b->pid);
		probes_detach(b->p, a);
		if (!probes_drain(b->p, true, &d))
			drain_free(d);
	}
	bench_report(name, median(ns), "ns/malloc+free", compared_with);
}

/* What our program itself takes, of an allocation that is not taken: without the trap. */
static void program_ns(struct bench *b)
{
	int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	struct bpf_prog_info info = {};
	struct attached *a;
	uint32_t n = sizeof(info);

	ask_for(b->p, b->pid, ALLOC, 1 << 30);
	a = attach(b, ALLOC);
	bench_nap(500);
	if (stats < 0 || bpf_obj_get_info_by_fd(a->memory->programs[MEMORY_ENTRY], &info, &n))
		bench_die("BPF statistics", errno);
	probes_detach(b->p, a);
	close(stats);
	bench_report("memory.program", (double)info.run_time_ns / MAX(info.run_cnt, 1ul), "ns/hit",
		     "an empty program: 50");
}

static void times(struct bench *b)
{
	double attach_ms[WINDOWS], detach_ms[WINDOWS];

	for (int i = 0; i < WINDOWS; i++) {
		uint64_t t0 = now_mono_ns(), t1;
		struct attached *a = attach(b, ALLOC | INUSE);

		t1 = now_mono_ns();
		probes_detach(b->p, a);
		attach_ms[i] = (t1 - t0) / 1e6;
		detach_ms[i] = (now_mono_ns() - t1) / 1e6;
	}
	bench_report("memory.attach", median(attach_ms), "ms", "6 places of one file");
	bench_report("memory.detach", median(detach_ms), "ms", "20 to 70 a link");
}

int main(void)
{
	double bare[WINDOWS];
	struct bench b = {.p = open_probes()};

	pairs = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pairs == MAP_FAILED)
		bench_die("mmap", errno);
	b.pid = start();
	probe_libc(&b.probed);
	for (int i = 0; i < WINDOWS; i++)
		bare[i] = ns_a_pair(b.pid);
	bench_report("memory.bare", median(bare), "ns/malloc+free", "no probes");
	ask_for(b.p, b.pid, ALLOC, 1);
	b.proc = known(b.p, b.pid);
	bench_report("memory.trap", probes_trap_ns(b.p), "ns", "an empty program");
	row(&b, "memory.alloc", ALLOC, 512 << 10, "goal 1000");
	row(&b, "memory.alloc_each", ALLOC, 1, "each stack is walked");
	row(&b, "memory.inuse", INUSE, 512 << 10, "goal 3500, bcc memleak 15000");
	row(&b, "memory.inuse_each", INUSE, 1, "each stack is walked, bcc memleak 15000");
	row(&b, "memory.both", ALLOC | INUSE, 512 << 10, "");
	program_ns(&b);
	times(&b);
	kill(b.pid, SIGKILL);
	waitpid(b.pid, NULL, 0);
	probes_free(b.p);
	return 0;
}
