/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of a name, with the real names of testdata/names.tsv: through the child; with
 * the demanglers alone in this process; and with libiberty alone, which reads fewer names. Also
 * measures the start of the child and the names of a hostile file.
 */
#include "lib/base/bench.h"
#include "lib/symbols/demangle.h"

#include <fcntl.h>

#define ROUNDS	    5
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

static void by_child(const char *name, void *arg)
{
	struct name_cost cost = {0};
	uint64_t again_ns;

	free(elf_demangler_text(arg, name, &cost, &again_ns));
}

static double names_a_second(void (*fn)(const char *name, void *arg), void *arg)
{
	double rounds[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t from = now_mono_ns();

		for (size_t k = 0; k < n_names; k++)
			fn(names[k], arg);
		rounds[i] = (double)n_names * NSEC_PER_SEC / (double)(now_mono_ns() - from);
	}
	return bench_median(rounds, ROUNDS);
}

static double first_name_ms(void)
{
	double rounds[ROUNDS];

	for (size_t i = 0; i < ROUNDS; i++) {
		struct demangler *d = elf_demangler_new(NULL, false);
		uint64_t from = now_mono_ns();

		by_child(names[0], d);
		rounds[i] = (double)(now_mono_ns() - from) / NSEC_PER_MSEC;
		elf_demangler_free(d);
	}
	return bench_median(rounds, ROUNDS);
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
	struct demangler *d = elf_demangler_new(NULL, false);

	read_names();
	if (elf_demangle_begin() < 0)
		bench_die("demangle_begin", errno);
	bench_report("names.libiberty", names_a_second(by_libiberty, NULL), "names/s",
		     "libiberty alone, which leaves some of them as they are");
	bench_report("names.demanglers", names_a_second(by_demanglers, NULL), "names/s",
		     "names.libiberty");
	bench_report("names.child", names_a_second(by_child, d), "names/s",
		     "names.demanglers; each of a file's functions once");
	bench_report("names.child_start", first_name_ms(), "ms", "once, and after a loss");
	bench_report("names.hostile_file", hostile_file_ms(d), "ms",
		     "1000 names that would take years each");
	elf_demangler_free(d);
	free(table);
	return 0;
}
