// SPDX-License-Identifier: Apache-2.0
/*
 * What events of uprobes cost the process: the CPU time of a malloc and free, of a call that
 * allocates memory of a GPU and one that frees it, of the reports of a GPU's work, and of calls
 * that post requests of RDMA, with and without probes. It prints one JSON object a line, and needs
 * root.
 */
#include "lib/base/bench.h"
#include "node/probe/calls_bench.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The result is the least of many short batches, in rounds over all rows. On a machine that other
 * programs use, too, any other measure varies more.
 */
#define ROUNDS	  8
#define WINDOW_MS 40
#define TIMES	  15
#define ALLOC	  (1u << EVENT_MEM_ALLOC)
#define INUSE	  (1u << EVENT_MEM_INUSE)

static volatile struct shared {
	uint64_t batches, least_ns;
} * shared;

typedef uint64_t batch_fn(void); /* returns how long BATCH pairs took, in ns */

static __attribute__((noinline)) uint64_t malloc_batch(void)
{
	static void *volatile p;
	uint64_t start = now_mono_ns();

	for (int i = 0; i < BATCH; i++) {
		p = malloc(100);
		free(p);
	}
	return now_mono_ns() - start;
}

static pid_t start(batch_fn *batch)
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork", errno);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t ns = batch();

		if (ns < shared->least_ns)
			shared->least_ns = ns;
		shared->batches++;
	}
}

static double ns_a_pair(void)
{
	uint64_t n;

	bench_nap(2);
	n = shared->batches;
	while (shared->batches < n + 2) /* skips batches that began before this call */
		bench_nap(1);
	shared->least_ns = UINT64_MAX;
	bench_nap(WINDOW_MS);
	while (shared->least_ns == UINT64_MAX)
		bench_nap(1);
	return (double)shared->least_ns / BATCH;
}

/* ---- the process, as the kernel identifies it ---- */

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

/* Returns when the process started: field 22 of /proc/PID/stat, in USER_HZ. */
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
		.id = {start_of(pid), pid},
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
		sample_drain_free(d);
	}
	return found;
}

/* ---- the probes of podflame ---- */

struct row;
struct bench {
	struct probes *p;
	enum probe_set set;
	struct row *rows;
	size_t n_rows;
	pid_t pid;
	struct raw_proc proc;
	struct probed probed;
};

static struct attached *attach(struct bench *b, unsigned events)
{
	struct attached *a = NULL;
	struct probes_refused refused;
	int r;

	b->probed.proc.event_mask = events;
	b->probed.proc.exec_id = b->proc.exec_id;
	r = probes_attach(b->p, b->set, (struct process_id){b->proc.start_boottime_ns, b->pid},
			  &b->probed.proc, &b->probed.file, 1, &a, &refused);
	if (r)
		bench_die("probes_attach", r);
	return a;
}

/* ---- rows ---- */

enum form {
	NOTHING,
	EMPTY_ENTRY,   /* an empty program at malloc */
	EMPTY_STEPPED, /* an empty program at an instruction of free that the kernel steps over */
	EMPTY_BOTH,    /* empty programs at malloc and free */
	EMPTY_RETURN,  /* empty programs at malloc's entry and return, and at free */
	OURS,
};
struct row {
	const char *name, *compared_with;
	enum form form;
	unsigned events;
	uint64_t bytes;
	double ns;
};
#define MEAN (512 << 10)
static struct row rows[] = {
	{"memory.bare", "no probes", NOTHING, 0, 0, 0},
	{"memory.floor_alloc", "an empty program at malloc", EMPTY_ENTRY, 0, 0, 0},
	{"memory.floor_inuse", "empty ones at malloc and free", EMPTY_BOTH, 0, 0, 0},
	{"memory.floor_return", "and one at malloc's return", EMPTY_RETURN, 0, 0, 0},
	{"memory.floor_stepped", "an empty program at free's first instruction", EMPTY_STEPPED, 0,
	 0, 0},
	{"memory.alloc", "goal 1000", OURS, ALLOC, MEAN, 0},
	{"memory.alloc_each", "each stack is walked", OURS, ALLOC, 1, 0},
	{"memory.inuse", "goal 3500, bcc memleak 15000", OURS, INUSE, MEAN, 0},
	{"memory.inuse_each", "each stack is walked, bcc memleak 15000", OURS, INUSE, 1, 0},
	{"memory.both", "", OURS, ALLOC | INUSE, MEAN, 0},
};

static struct row gpu_rows[] = {
	{"gpu_memory.bare", "no probes", NOTHING, 0, 0, 0},
	{"gpu_memory.alloc", "entry and return, with a walk", OURS, 1u << EVENT_HBM_ALLOC, 0, 0},
	{"gpu_memory.inuse", "the same, and the free", OURS, 1u << EVENT_HBM_INUSE, 0, 0},
	{"gpu_memory.both", "", OURS, 1u << EVENT_HBM_ALLOC | 1u << EVENT_HBM_INUSE, 0, 0},
};

static struct row on_gpu_rows[] = {
	{"on_gpu.launch_bare", "no probes", NOTHING, 0, 0, 0},
	{"on_gpu.launch", "its stack is walked", OURS, 1u << EVENT_ON_GPU, 0, 0},
	{"on_gpu.work_bare", "no probes", NOTHING, 0, 0, 0},
	{"on_gpu.work", "32 pieces in a report", OURS, 1u << EVENT_ON_GPU, 0, 0},
};

static struct row rdma_rows[] = {
	{"rdma.post_bare", "no probes", NOTHING, 0, 0, 0},
	{"rdma.post_send", "one request: entry and return, with a walk", OURS, 1u << EVENT_RDMA, 0,
	 0},
	{"rdma.post_list_bare", "no probes", NOTHING, 0, 0, 0},
	{"rdma.post_list", "16 requests in a list", OURS, 1u << EVENT_RDMA, 0, 0},
	{"rdma.extended_bare", "no probes", NOTHING, 0, 0, 0},
	{"rdma.extended", "ibv_wr_start, _send, _set_sge, _complete", OURS, 1u << EVENT_RDMA, 0, 0},
	{"rdma_latency.empty_bare", "no probes", NOTHING, 0, 0, 0},
	{"rdma_latency.empty", "a poll that finds nothing", OURS, 1u << EVENT_RDMA_LATENCY, 0, 0},
	{"rdma_latency.request_bare", "no probes", NOTHING, 0, 0, 0},
	{"rdma_latency.request", "a post, and the poll that takes its completion", OURS,
	 1u << EVENT_RDMA_LATENCY, 0, 0},
};
/* Two rows each. */
static const struct {
	enum probe_set set;
	batch_fn *batch;
	const char *unit;
} rdma_batches[] = {
	{PROBES_RDMA, post_batch, "ns/call"},
	{PROBES_RDMA, post_list_batch, "ns/call"},
	{PROBES_RDMA, extended_batch, "ns/call"},
	{PROBES_RDMA_LATENCY, empty_poll_batch, "ns/poll"},
	{PROBES_RDMA_LATENCY, completed_batch, "ns/request"},
};

static int empty(struct bench *b, const char *function, bool emulated, bool at_return)
{
	struct library l = library_of(dlsym(RTLD_DEFAULT, function));
	uint64_t at = emulated ? probes_emulated_place(b->probed.file.fd, l.offset) : l.offset;
	int link = probes_uprobe_attach_trivial(UPROBE_MULTI, l.path, at, b->pid, at_return);

	if (link < 0)
		bench_die("uprobe_attach_trivial", link);
	return link;
}

static double measure_empty(struct bench *b, enum form form)
{
	bool stepped = form == EMPTY_STEPPED;
	int links[3] = {-1, -1, -1};
	double ns;

	if (form >= EMPTY_ENTRY && !stepped)
		links[0] = empty(b, "malloc", true, false);
	if (form == EMPTY_RETURN)
		links[1] = empty(b, "malloc", true, true);
	if (form >= EMPTY_STEPPED)
		links[2] = empty(b, "free", !stepped, false);
	ns = ns_a_pair();
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (links[i] >= 0)
			close(links[i]);
	return ns;
}

static double measure_ours(struct bench *b, const struct row *r)
{
	struct attached *a;
	struct drain *d = NULL;
	double ns;

	ask_for(b->p, b->pid, r->events, r->bytes);
	a = attach(b, r->events);
	ns = ns_a_pair();
	probes_detach(b->p, a);
	if (!probes_drain(b->p, true, &d))
		sample_drain_free(d);
	return ns;
}

static void round_of(struct bench *b)
{
	for (size_t i = 0; i < b->n_rows; i++) {
		struct row *r = &b->rows[i];
		double ns = r->form == OURS ? measure_ours(b, r) : measure_empty(b, r->form);

		if (!r->ns || ns < r->ns)
			r->ns = ns;
	}
}

static double row_ns(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].ns;
	abort();
}

static void report_rows(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		bench_report(rows[i].name, rows[i].ns, "ns/malloc+free", rows[i].compared_with);
	bench_report("memory.alloc_over_floor",
		     row_ns("memory.alloc") - row_ns("memory.floor_alloc"), "ns/malloc+free",
		     "one hit");
	bench_report("memory.inuse_over_floor",
		     row_ns("memory.inuse") - row_ns("memory.floor_inuse"), "ns/malloc+free",
		     "two hits");
	bench_report("memory.inuse_each_over_floor",
		     row_ns("memory.inuse_each") - row_ns("memory.floor_return"), "ns/malloc+free",
		     "three hits, a walk, two maps");
}

/* ---- the time of the programs alone ---- */

static struct bpf_prog_info program_info(int fd)
{
	struct bpf_prog_info info = {};
	uint32_t n = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &n))
		bench_die("BPF statistics", errno);
	return info;
}

#define RUNS 2000

/*
 * Returns how long a run of the program takes for an allocation that is not sampled. The kernel
 * measures it, without the trap.
 */
static double program_ns(struct bench *b, enum set_program program, unsigned event)
{
	struct attached *a;
	double least = 0;

	ask_for(b->p, b->pid, event, 1 << 30);
	a = attach(b, event);
	for (int i = 0; i < ROUNDS * 2; i++) {
		int fd = a->set->of_many[program];
		struct bpf_prog_info was = program_info(fd), is = was;
		double ns;

		while (is.run_cnt - was.run_cnt < RUNS) {
			bench_nap(1);
			is = program_info(fd);
		}
		ns = (double)(is.run_time_ns - was.run_time_ns) / (is.run_cnt - was.run_cnt);
		if (!least || ns < least)
			least = ns;
	}
	probes_detach(b->p, a);
	return least;
}

static void programs(struct bench *b)
{
	int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	bool session = probes_uprobe_mode() == UPROBE_SESSION;

	if (stats < 0)
		bench_die("BPF statistics", errno);
	bench_report("memory.program_alloc", program_ns(b, PROGRAM_ENTRY, ALLOC), "ns/hit",
		     "an empty program: 50");
	bench_report("memory.program_inuse",
		     program_ns(b, session ? PROGRAM_SESSION : PROGRAM_ENTRY, INUSE), "ns/hit",
		     "an empty program: 50");
	bench_report("memory.program_free", program_ns(b, PROGRAM_FREE, INUSE), "ns/hit",
		     "an empty program: 50");
	close(stats);
}

static void times(struct bench *b)
{
	double attach_ms[TIMES], detach_ms[TIMES];

	for (int i = 0; i < TIMES; i++) {
		uint64_t t0 = now_mono_ns(), t1;
		struct attached *a = attach(b, ALLOC | INUSE);

		t1 = now_mono_ns();
		probes_detach(b->p, a);
		attach_ms[i] = (t1 - t0) / 1e6;
		detach_ms[i] = (now_mono_ns() - t1) / 1e6;
	}
	bench_rounds("memory.attach", attach_ms, TIMES, "ms", "", "6 places of one file");
	bench_rounds("memory.detach", detach_ms, TIMES, "ms", "", "20 to 70 a link");
}

/* Starts a process that runs these batches. It is probed at the sites of b->probed. */
static void open_program(struct bench *b, batch_fn *batch)
{
	b->pid = start(batch);
	ask_for(b->p, b->pid, probes_set_events(b->set), 1);
	b->proc = known(b->p, b->pid);
}

static void close_program(struct bench *b)
{
	kill(b->pid, SIGKILL);
	waitpid(b->pid, NULL, 0);
}

static void bench_set(struct bench *b, batch_fn *batch, const char *unit)
{
	open_program(b, batch);
	for (int i = 0; i < ROUNDS; i++)
		round_of(b);
	for (size_t i = 0; i < b->n_rows; i++)
		bench_report(b->rows[i].name, b->rows[i].ns, unit, b->rows[i].compared_with);
	close_program(b);
}

static void bench_gpu(struct probes *p)
{
	struct bench memory = {
		.p = p, .set = PROBES_GPU_MEMORY, .rows = gpu_rows, .n_rows = ARRAY_SIZE(gpu_rows)};
	struct bench launch = {.p = p, .set = PROBES_GPU, .rows = on_gpu_rows, .n_rows = 2};
	struct bench work = {.p = p, .set = PROBES_GPU, .rows = on_gpu_rows + 2, .n_rows = 2};

	probe_gpu(&memory.probed);
	bench_set(&memory, gpu_batch, "ns/alloc+free");
	probe_on_gpu(&launch.probed);
	bench_set(&launch, launch_batch, "ns/launch");
	probe_on_gpu(&work.probed);
	bench_set(&work, work_batch, "ns/piece");
}

static void bench_rdma(struct probes *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(rdma_batches); i++) {
		struct bench b = {
			.p = p, .set = rdma_batches[i].set, .rows = &rdma_rows[2 * i], .n_rows = 2};

		probe_rdma(&b.probed);
		bench_set(&b, rdma_batches[i].batch, rdma_batches[i].unit);
	}
}

int main(void)
{
	struct bench b = {
		.p = open_probes(), .set = PROBES_MEMORY, .rows = rows, .n_rows = ARRAY_SIZE(rows)};

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		bench_die("mmap", errno);
	probe_libc(&b.probed);
	open_program(&b, malloc_batch);
	bench_report("memory.trap", probes_trap_ns(b.p), "ns", "an empty program");
	for (int i = 0; i < ROUNDS; i++)
		round_of(&b);
	report_rows();
	programs(&b);
	times(&b);
	close_program(&b);
	bench_gpu(b.p);
	bench_rdma(b.p);
	probes_free(b.p);
	return 0;
}
