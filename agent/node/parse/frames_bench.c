/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures what parsing a file costs: CPU time of the whole parse, and the bytes of the unwind
 * tables. Arguments: other files to parse.
 */
#include "lib/base/bench.h"
#include "node/parse/format.h"

#include <fcntl.h>
#include <unistd.h>

#define ROUNDS 7

static const char *const files[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	"/usr/bin/python3",
	"/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
	"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
	"/usr/bin/node",
	"/usr/lib/chromium/chromium",
};

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

/* Parses a file, and returns the CPU time that this takes. *ret: the index. */
static uint64_t parse_ns(int fd, const char *path, struct elf_index **ret)
{
	uint64_t start = cpu_ns(), ns;
	int memfd, r;
	enum parse_reason reason = parse_elf_to_index(fd, NULL, INDEX_BYTES_MAX, &memfd);

	ns = cpu_ns() - start;
	if (reason)
		bench_die(path, EBADMSG);
	r = elf_index_open(memfd, ret);
	if (r < 0)
		bench_die(path, r);
	return ns;
}

static void report(const char *path, const char *what, double value, const char *unit,
		   const char *compared_with)
{
	const char *base = strrchr(path, '/');
	_cleanup_free_ char *name = xasprintf("unwind_table_%s.%s", what, base ? base + 1 : path);

	bench_report(name, value, unit, compared_with);
}

static void bench_file(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t best = UINT64_MAX;
	struct elf_tables t;
	struct elf_index *i;

	if (fd < 0) {
		fprintf(stderr, "frames_bench: skip: no %s on this machine\n", path);
		return;
	}
	for (int k = 0; k < ROUNDS; k++) {
		best = MIN(best, parse_ns(fd, path, &i));
		elf_index_tables(i, &t);
		if (k < ROUNDS - 1)
			elf_index_unref(i);
	}
	report(path, "build_ms", best / 1e6, "CPU ms",
	       "libLLVM-14: 150 at most; 400 is the best peer's");
	report(path, "kbytes",
	       (t.n_rows * sizeof(*t.rows) + t.n_pages * sizeof(*t.pages) +
		t.n_rules * sizeof(*t.rules)) /
		       1e3,
	       "kB", "libLLVM-14: 6000 at most; 11000 is the best peer's");
	report(path, "rows", t.n_rows, "rows", "-");
	report(path, "rules", t.n_rules, "rules", "4096 is the limit");
	elf_index_unref(i);
}

int main(int argc, char **argv)
{
	for (int k = 1; k < argc; k++)
		bench_file(argv[k]);
	for (size_t k = 0; argc == 1 && k < ARRAY_SIZE(files); k++)
		bench_file(files[k]);
	return 0;
}
