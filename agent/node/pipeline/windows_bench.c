/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how many records an agent takes from the kernel and folds into windows per second of
 * CPU. There are two steps: from map and ring to a drain, and from a drain to named frames in a
 * window. Processes on every CPU are sampled far more often than in practice, and nearly every
 * record has its own stack. Needs root.
 */
#include "node/pipeline/internal.h"
#include "node/probe/bench_probes.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HZ	4000
#define ROUNDS	8
#define CPU_MAX 64

/* ---- the load: calls up to 60 levels deep, and each level is chosen at random ---- */

static __attribute__((noinline)) unsigned left(uint64_t turns, unsigned depth);

static void burn(void)
{
	for (volatile int i = 0; i < 60000; i++)
		;
}

static __attribute__((noinline)) unsigned right(uint64_t turns, unsigned depth)
{
	volatile unsigned below = 0;

	if (depth)
		below = turns & 1 ? left(turns >> 1, depth - 1) : right(turns >> 1, depth - 1);
	else
		burn();
	return below + 1;
}

static unsigned left(uint64_t turns, unsigned depth)
{
	volatile unsigned below = 0;

	if (depth)
		below = turns & 1 ? left(turns >> 1, depth - 1) : right(turns >> 1, depth - 1);
	else
		burn();
	return below + 2;
}

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork", errno);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t turns = (uint64_t)random() << 32 ^ (uint64_t)random();

		left(turns, (unsigned)random() % 60);
	}
}

/* ---- the kernel's side ---- */

static struct probes *open_probes(struct owner *owner, uint64_t *ret_cgroup)
{
	struct container_filter own;
	struct probes *p = bench_probes(EVENT_ON_CPU, HZ, &own);

	*ret_cgroup = own.cgroup_id;
	owner->event_mask = own.event_mask;
	if (probes_filter(p, &own, 1))
		bench_die("filter", errno);
	return p;
}

/* ---- a drain ---- */

struct bench {
	struct probes *probes;
	struct windows *windows;
	struct owner *owner;
	uint64_t cgroup;
};

static void learn_processes(struct bench *b, const struct drain *d)
{
	for (size_t i = 0; i < d->n_procs; i++) {
		struct mappings *m;

		if (proc_mappings_read(process_id_of(&d->procs[i]), d->procs[i].exec_id, &m))
			continue;
		pipeline_windows_mappings(b->windows, m, 0);
		proc_mappings_unref(m);
	}
}

struct rates {
	double drained, folded, both, kept;
};

static void one_drain(struct bench *b, struct rates *ret)
{
	struct feed f = {.full = true, .last_pass = true};
	struct feed_answer answer = {0};
	uint64_t drain_ns = thread_cpu_ns(), fold_ns;
	double n;

	if (probes_drain(b->probes, true, &f.drain))
		bench_die("drain", errno);
	drain_ns = thread_cpu_ns() - drain_ns;
	learn_processes(b, f.drain);
	pipeline_note_processes(b->windows, &f);
	f.owners = xcalloc(1, sizeof(*f.owners));
	f.owners[f.n_owners++] = (struct attribution){
		.cgroup_id = b->cgroup, .until_ns = UINT64_MAX, .owner = proc_owner_ref(b->owner)};
	fold_ns = thread_cpu_ns();
	pipeline_windows_fold(b->windows, &f, &answer);
	fold_ns = thread_cpu_ns() - fold_ns;
	n = (double)f.drain->n_samples;
	*ret = (struct rates){.drained = n * 1e9 / drain_ns,
			      .folded = n * 1e9 / fold_ns,
			      .both = n * 1e9 / (drain_ns + fold_ns),
			      .kept = n ? answer.taken[0].n_samples[EVENT_ON_CPU] / n : 0};
	pipeline_feed_answer_done(&answer);
	pipeline_feed_done(&f);
}

static void measure(struct bench *b)
{
	double drained[ROUNDS], folded[ROUNDS], both[ROUNDS], kept[ROUNDS];
	struct rates r;

	for (int i = -2; i < ROUNDS; i++) { /* in the first rounds, files are parsed */
		bench_nap(1000);
		one_drain(b, &r);
		if (i < 0)
			continue;
		drained[i] = r.drained;
		folded[i] = r.folded;
		both[i] = r.both;
		kept[i] = r.kept;
	}
	if (bench_median(kept, ROUNDS) < 0.99)
		bench_die("records that went into the window", ENODATA);
	bench_rounds("pipeline.drained", drained, ROUNDS, "records/CPU s", "",
		     "map and ring -> drain, each with a new stack of 3 to 60 frames");
	bench_rounds("pipeline.folded", folded, ROUNDS, "records/CPU s", "",
		     "drain -> named frames in a window");
	bench_rounds("pipeline.records", both, ROUNDS, "records/CPU s", "",
		     "both; two busy CPUs at 99 Hz make 198 a second at most");
}

int main(int argc, char **argv)
{
	const struct files_config fc = {};
	const struct fold_config c = {
		.node_uid = "u", .boot_id = "b", .node_name = "n", .window_ns = 10 * NSEC_PER_SEC};
	struct files *files;
	long n = MIN(sysconf(_SC_NPROCESSORS_ONLN), CPU_MAX);
	struct bench b = {.owner = xcalloc(1, sizeof(*b.owner))};
	pid_t pids[CPU_MAX];
	int r;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	b.owner->refs = 1;
	b.owner->off_keep = UINT32_MAX;
	b.owner->container_id = xstrdup("c0ffee");
	r = files_new(&fc, &files);
	if (!r)
		r = pipeline_windows_new(&c, files, NULL, &b.windows);
	if (r)
		bench_die("pipeline", r);
	b.probes = open_probes(b.owner, &b.cgroup);
	for (long i = 0; i < n; i++)
		bench_join(pids[i] = start());
	measure(&b);
	for (long i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	pipeline_windows_free(b.windows);
	files_free(files);
	probes_free(b.probes);
	proc_owner_unref(b.owner);
	bench_nap(50);
	bench_leave();
	return 0;
}
