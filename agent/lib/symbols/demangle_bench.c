/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of a name, with the real names of testdata/names.tsv: through children, of one
 * file and of several files in turns; with the demanglers alone in this process; and with libiberty
 * alone, which reads fewer names. Also measures the start of a child, the memory of the children,
 * and the names of a hostile file. The children run podflame (in the directory $BUILD).
 */
#include "lib/base/bench.h"
#include "lib/symbols/demangle.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define ROUNDS	    5
#define MANY_FILES  64
#define MANY_NAMES  256 /* names of so many files: each may start a child */
#define TAKES_YEARS "_RMIC1aFGzzzzzzzzzz_EuEu"

typedef void append_fn(const char *s, size_t n, void *arg);
int demangle_gnu(const char *mangled, int options, append_fn *append, void *arg);
int demangle_rust(const char *mangled, int options, append_fn *append, void *arg);

static char *table;
static const char *names[4096];
static size_t n_names;

static void read_names(void)
{
	char *save;
	int r = file_read(AT_FDCWD, "agent/lib/symbols/testdata/names.tsv", 1 << 20, &table, NULL);

	if (r < 0)
		bench_die("names.tsv", r);
	for (char *line = strtok_r(table, "\n", &save); line && n_names < ARRAY_SIZE(names);
	     line = strtok_r(NULL, "\n", &save)) {
		if (*line == '#')
			continue;
		line[strcspn(line, "\t")] = '\0';
		names[n_names++] = line;
	}
}

static void ignore(const char *s, size_t n, void *arg)
{
	(void)s;
	*(size_t *)arg += n;
}

static void by_libiberty(const char *name, void *arg)
{
	size_t n = 0;

	(void)arg;
	if (name[1] == 'R')
		demangle_rust(name, 0, ignore, &n);
	else
		demangle_gnu(name, 3, ignore, &n);
}

static void by_demanglers(const char *name, void *arg)
{
	const char *text;

	(void)arg;
	elf_demangle(name, &text);
}

/* Asks for names of n files in turns. */
struct asked {
	struct demangler *d;
	struct name_cost costs[MANY_FILES];
	size_t n, next;
};

static void by_child(const char *name, void *arg)
{
	struct asked *a = arg;
	struct name_cost *cost = &a->costs[a->next++ % a->n];
	uint64_t again_ns;

	cost->spent_ns = 0; /* the same names come many times */
	free(elf_demangler_text(a->d, name, cost, &again_ns));
}

static double names_a_second(void (*fn)(const char *name, void *arg), void *arg, size_t n)
{
	double rounds[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t from = now_mono_ns();

		for (size_t k = 0; k < n; k++)
			fn(names[k], arg);
		rounds[i] = (double)n * NSEC_PER_SEC / (double)(now_mono_ns() - from);
	}
	return bench_median(rounds, ROUNDS);
}

static double child_names_a_second(struct demangler *d, size_t n_files, size_t n)
{
	struct asked a = {.d = d, .n = n_files};

	return names_a_second(by_child, &a, n);
}

static double first_name_ms(const char *program)
{
	double rounds[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		struct asked a = {.d = elf_demangler_new(program, false), .n = 1};
		uint64_t from = now_mono_ns();

		by_child(names[0], &a);
		rounds[i] = (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
		elf_demangler_free(a.d);
	}
	return bench_median(rounds, ROUNDS);
}

/* Adds the memory of a process, if it is a child that demangles. Shared pages count in parts. */
static void add_memory(const char *pid, size_t *n, double *kb)
{
	_cleanup_free_ char *path = xasprintf("/proc/%s/comm", pid), *comm = NULL, *rollup = NULL;
	unsigned long pss = 0;
	const char *line;

	if (file_read(AT_FDCWD, path, 64, &comm, NULL) < 0 || !streq(comm, "podflame-names\n"))
		return;
	free(path);
	path = xasprintf("/proc/%s/smaps_rollup", pid);
	if (file_read(AT_FDCWD, path, 4096, &rollup, NULL) < 0)
		return;
	line = strstr(rollup, "\nPss:");
	if (line && sscanf(line, "\nPss: %lu", &pss) == 1)
		++*n;
	*kb += (double)pss;
}

static void report_memory(const char *name)
{
	DIR *d = opendir("/proc");
	double kb = 0;
	size_t n = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		add_memory(e->d_name, &n, &kb);
	if (d)
		closedir(d);
	if (n)
		bench_report(name, kb, "KiB", "PSS of all children that wait; see names.children");
	bench_report("names.children", (double)n, "children", "of all, after many files");
}

static double hostile_file_ms(struct demangler *d)
{
	struct name_cost cost = {0};
	uint64_t from = now_mono_ns(), again_ns;

	for (size_t i = 0; i < 1000; i++)
		free(elf_demangler_text(d, TAKES_YEARS, &cost, &again_ns));
	return (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
}

int main(void)
{
	_cleanup_free_ char *built = xasprintf("%s/podflame", getenv("BUILD") ?: "build");
	const char *program = access(built, X_OK) == 0 ? built : NULL;
	struct demangler *d = elf_demangler_new(program, false);

	read_names();
	if (elf_demangle_begin() < 0)
		bench_die("demangle_begin", errno);
	bench_report("names.libiberty", names_a_second(by_libiberty, NULL, n_names), "names/s",
		     "libiberty alone, which leaves some of them as they are");
	bench_report("names.demanglers", names_a_second(by_demanglers, NULL, n_names), "names/s",
		     "names.libiberty");
	bench_report("names.child", child_names_a_second(d, 1, n_names), "names/s",
		     "names.demanglers; each of a file's functions once");
	bench_report("names.two_files", child_names_a_second(d, 2, n_names), "names/s",
		     "names.child; names of two files in turns");
	bench_report("names.many_files", child_names_a_second(d, MANY_FILES, MANY_NAMES), "names/s",
		     "names.child; names of 64 files in turns");
	report_memory("names.children_memory");
	bench_report("names.child_start", first_name_ms(program), "ms",
		     "once a file, and after a loss");
	bench_report("names.hostile_file", hostile_file_ms(d), "ms",
		     "1000 names that would take years each");
	elf_demangler_free(d);
	free(table);
	return 0;
}
