/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long it takes to find the runtimes of a process whose files are parsed: the first
 * time, and again when nothing is new. Also measures how many bytes the search reads from the
 * process.
 */
#include "lib/base/bench.h"
#include "node/learn/learn.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS	 20
#define START_NS (2 * NSEC_PER_SEC) /* the time that the slowest runtime, a JVM, needs to start */

static char spin_path[] = "/tmp/runs_bench-XXXXXX.java";

static const struct {
	const char *name;
	const char *argv[6];
} programs[] = {
	{"python", {"/usr/bin/python3", "-c", "while True: pass"}},
	{"jvm", {"/usr/bin/java", "-Xmx64m", spin_path}},
	{"lua", {"/usr/bin/lua5.1", "-e", "while true do end"}},
	{"luajit", {"/usr/bin/luajit", "-e", "while true do end"}},
	{"native", {"/bin/sh", "-c", "while :; do :; done"}},
};
static const char spin[] = "class Spin { public static void main(String[] a) { for (;;) ; } }\n";

static pid_t start(const char *const *argv)
{
	pid_t pid = fork();
	int null;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 1);
	dup2(null, 2);
	execv(argv[0], (char *const *)argv);
	_exit(1);
}

static void parse_all(struct files *f, const struct mappings *m)
{
	struct elf_index *index;

	for (size_t i = 0; i < m->n; i++)
		if (files_index(f, &m->items[i], &index) == 0)
			elf_index_unref(index);
}

static void report(const char *name, const char *what, double value, const char *unit,
		   const char *against)
{
	_cleanup_free_ char *full = xasprintf("learn.%s_%s", name, what);

	bench_report(full, value, unit, against);
}

static void learn(struct files *f, const char *name, const struct mappings *m)
{
	struct counter *bytes = counter("podflame_runtime_read_bytes_total", "for", "learn");
	uint64_t before = counter_get(bytes), from = now_mono_ns(), first_ns;
	struct runtime_process *p = NULL, *again = NULL;
	bool starting;

	if (learn_runtimes(f, m, NULL, NULL, &p, &starting) < 0) {
		fprintf(stderr, "runs_bench: %s: could not be read\n", name);
		return;
	}
	first_ns = now_mono_ns() - from;
	report(name, "first", first_ns / 1e3, "us", p ? "once a process" : "nothing is found");
	report(name, "bytes", counter_get(bytes) - before, "bytes", "8 MiB, the budget");
	from = now_mono_ns();
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (learn_runtimes(f, m, p, NULL, &again, &starting) == 0)
			runtime_process_unref(again);
		again = NULL;
	}
	report(name, "again", (now_mono_ns() - from) / 1e3 / ROUNDS, "us",
	       "each change of mappings");
	runtime_process_unref(p);
}

static void bench(struct files *f, size_t k)
{
	struct mappings *m = NULL;
	uint64_t start_ns;
	pid_t pid;

	if (access(programs[k].argv[0], X_OK) < 0) {
		fprintf(stderr, "runs_bench: skip: no %s on this machine\n", programs[k].argv[0]);
		return;
	}
	pid = start(programs[k].argv);
	usleep(START_NS / 1000);
	if (proc_start_boottime(pid, &start_ns) == 0 &&
	    proc_mappings_read((struct process_id){start_ns, pid}, 1, &m) == 0) {
		parse_all(f, m);
		learn(f, programs[k].name, m);
	}
	proc_mappings_unref(m);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	const struct files_config fc = {.parser.marks = learn_markers()};
	struct files *f;
	int r, fd;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	r = files_new(&fc, &f);
	if (r)
		bench_die("files", r);
	fd = mkostemps(spin_path, 5, O_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, spin, strlen(spin)) < 0)
		bench_die(spin_path, errno);
	close(fd);
	for (size_t k = 0; k < ARRAY_SIZE(programs); k++)
		bench(f, k);
	unlink(spin_path);
	files_free(f);
	return 0;
}
