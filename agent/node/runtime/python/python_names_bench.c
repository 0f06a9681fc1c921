/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what it costs to learn a new Python process, alone in its namespace and after another
 * one, and to name frames of it: the first time, and again. CPU is that of the agent and of the
 * child that reads the process's memory.
 */
#include "lib/base/bench.h"
#include "lib/base/testchild.h"
#include "node/parse/format.h"
#include "node/runtime/python/python.h"
#include "node/runtime/reader.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "/usr/bin/python3"
#define ROUNDS	9
#define FRAMES	1000

/* Prints the addresses of its code objects, then waits. */
static const char script[] =
	"import sys, argparse, json, logging, email.message, http.client, inspect, types\n"
	"out = []\n"
	"def walk(c):\n"
	"    out.append(id(c))\n"
	"    for x in c.co_consts:\n"
	"        if isinstance(x, types.CodeType): walk(x)\n"
	"for m in list(sys.modules.values()):\n"
	"    for f in list(vars(m).values()):\n"
	"        for g in vars(f).values() if isinstance(f, type) else [f]:\n"
	"            if isinstance(g, types.FunctionType): walk(g.__code__)\n"
	"print(id(globals()), *list(dict.fromkeys(out))[:1000], flush=True)\n"
	"sys.stdin.read()\n";

struct program {
	pid_t pid;
	FILE *from;
	int to;
	struct mappings *maps;
	struct elf_index **indexes;
	uint64_t globals, codes[FRAMES];
	size_t n;
};

static void start(struct program *p)
{
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		bench_die("pipe", errno);
	p->pid = fork();
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(PROGRAM, PROGRAM, "-B", "-c", script, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	p->to = in[1];
	p->from = fdopen(out[0], "r");
	if (fscanf(p->from, "%" SCNu64, &p->globals) != 1)
		bench_die(PROGRAM, -ESRCH);
	while (p->n < FRAMES && fscanf(p->from, "%" SCNu64, &p->codes[p->n]) == 1)
		p->n++;
}

static void read_files(struct program *p)
{
	uint64_t start_ns;

	if (proc_start_boottime((uint32_t)p->pid, &start_ns) ||
	    proc_mappings_read((struct process_id){start_ns, p->pid}, 1, &p->maps))
		bench_die("mappings", -ESRCH);
	p->indexes = xcalloc(p->maps->n, sizeof(*p->indexes));
	for (size_t i = 0; i < p->maps->n; i++) {
		int fd = p->maps->items[i].fd, memfd;

		if (fd >= 0 &&
		    parse_elf_to_index(fd, runtime_marks(), 64 << 20, &memfd) == PARSE_OK)
			(void)elf_index_open(memfd, &p->indexes[i]);
	}
}

static struct runtime_process *learn(struct program *p, struct runtime_process *old)
{
	struct runtime_process *ret = NULL;
	bool again;
	int r = runtime_learn(old, p->maps, p->indexes, NULL, &ret, &again);

	if (r < 0 || runtime_process_n(ret) != 1)
		bench_die("learn", r ? r : -ENOENT);
	return ret;
}

/* The words of a frame of each code object, as the kernel's part makes them. */
static void make_frames(struct program *p, const struct pf_python *d, struct runtime_ask *asks)
{
	struct process_memory *pm;
	struct memory *m;

	if (runtime_process_memory_open(p->maps->id, &pm))
		bench_die("memory", -ESRCH);
	m = runtime_process_memory(pm);
	for (size_t i = 0; i < p->n; i++) {
		uint64_t code = p->codes[i], counts[PF_PYTHON_COUNTS], name, hash;

		if (runtime_memory_read(m, code + d->code_counts, counts, sizeof(counts)) ||
		    runtime_memory_u64(m, code + d->code_name, &name) ||
		    runtime_memory_u64(m, name + PF_PYTHON_HASH, &hash))
			bench_die("code object", -EFAULT);
		asks[i] = (struct runtime_ask){
			.kind = PF_RUNTIME_PYTHON,
			.frame = {0, code | pf_python_cookie(counts, hash) << 48,
				  p->globals | 1ull << 48},
		};
	}
	runtime_process_memory_close(pm);
}

/* CPU of this process and of the child that reads for it. */
static uint64_t cpu_ns(void)
{
	pid_t child = testchild_pid("podflame-reader");
	struct timespec t = {0};
	clockid_t clock;

	if (child && clock_getcpuclockid(child, &clock) == 0)
		clock_gettime(clock, &t);
	return own_cpu_ns() + (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static double ms_since(uint64_t from, uint64_t now)
{
	return (double)(now - from) / NSEC_PER_MSEC;
}

static struct elf_index *index_of(void *program, const struct mapping *m)
{
	const struct program *p = program;
	struct elf_index *index = p->indexes[m - p->maps->items];

	return index ? elf_index_ref(index) : NULL;
}

static void name_all(struct program *p, struct runtime_process *of, struct runtime_ask *asks,
		     double *ms, double *cpu_ms)
{
	const struct runtime_source from = {p->maps, index_of, p};
	uint64_t cpu = cpu_ns(), from_ns = now_mono_ns();

	if (runtime_resolve(of, &from, asks, p->n))
		bench_die("names", -ESRCH);
	*ms = ms_since(from_ns, now_mono_ns());
	*cpu_ms = ms_since(cpu, cpu_ns());
	for (size_t i = 0; i < p->n; i++) {
		if (asks[i].error)
			bench_die("name", asks[i].error);
		runtime_names_done(&asks[i].names);
	}
}

int main(void)
{
	static double alone[ROUNDS], after[ROUNDS], known[ROUNDS], first[ROUNDS], again[ROUNDS],
		first_cpu[ROUNDS], again_cpu[ROUNDS];
	static struct runtime_ask asks[FRAMES];
	struct program p = {0};

	if (access(PROGRAM, X_OK))
		return 0;
	start(&p);
	read_files(&p);
	for (size_t i = 0; i < ROUNDS; i++) {
		struct runtime_process *one, *two, *three;
		uint64_t t[4];

		runtime_reader_use(NULL, NULL); /* no child runs yet */
		t[0] = now_mono_ns();
		one = learn(&p, NULL);
		t[1] = now_mono_ns();
		two = learn(&p, NULL);
		t[2] = now_mono_ns();
		three = learn(&p, two);
		t[3] = now_mono_ns();
		alone[i] = ms_since(t[0], t[1]);
		after[i] = ms_since(t[1], t[2]);
		known[i] = ms_since(t[2], t[3]);
		make_frames(&p, runtime_process_at(two, 0).learnt->data, asks);
		name_all(&p, two, asks, &first[i], &first_cpu[i]);
		name_all(&p, two, asks, &again[i], &again_cpu[i]);
		runtime_process_unref(one);
		runtime_process_unref(two);
		runtime_process_unref(three);
	}
	bench_rounds("python_learn_first_of_namespace", alone, ROUNDS, "ms", "", "");
	bench_rounds("python_learn", after, ROUNDS, "ms", "", "");
	bench_rounds("python_learn_again", known, ROUNDS, "ms", "", "");
	bench_rounds("python_names_of_1000_frames", first, ROUNDS, "ms", "", "");
	bench_rounds("python_names_of_1000_frames_cpu", first_cpu, ROUNDS, "ms", "", "");
	bench_rounds("python_names_of_1000_frames_again", again, ROUNDS, "ms", "", "");
	bench_rounds("python_names_of_1000_frames_again_cpu", again_cpu, ROUNDS, "ms", "", "");
	kill(p.pid, SIGKILL);
	waitpid(p.pid, NULL, 0);
	return 0;
}
