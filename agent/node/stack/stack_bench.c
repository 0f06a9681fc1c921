/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how many symbols of a library of 110 MB are found in a second of CPU time: cold (the
 * parse child makes the index first), and warm (each symbol was looked up before). The addresses
 * are spread over all code of the library.
 */
#include "lib/base/bench.h"
#include "node/stack/internal.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#define LIBRARY "libLLVM-14.so.1"
#define DEPTH	30
#define STACKS	1000
#define FRAMES	(STACKS * DEPTH)
#define ROUNDS	7

struct text {
	uint64_t from, n_bytes;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct text *t = arg;

	(void)size;
	if (!strstr(info->dlpi_name, "libLLVM"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_flags & PF_X)
			*t = (struct text){info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
					   info->dlpi_phdr[i].p_memsz};
	return 1;
}

static struct stacks *open_stacks(struct files *files, uint64_t *ret_start_ns)
{
	struct stacks_config c = {.files = files};
	struct mappings *m = NULL;
	struct stacks *s;
	int r = stacks_new(&c, &s);

	if (!r)
		r = proc_start_boottime(getpid(), ret_start_ns);
	if (!r)
		r = proc_mappings_read((struct process_id){*ret_start_ns, getpid()}, 1, &m);
	if (r)
		bench_die("own mappings", r);
	stacks_mappings(s, m, 0);
	proc_mappings_unref(m);
	return s;
}

/* Resolves all stacks, and returns the CPU time of all threads that this takes. */
static uint64_t resolve_ns(struct stacks *s, uint64_t start_ns, const struct raw_frame *frames)
{
	struct batch *b = profile_batch_new();
	uint64_t from = own_cpu_ns();

	for (unsigned i = 0; i < STACKS; i++) {
		struct raw_stack raw = {.hash = i + 1, .frames = frames + i * DEPTH, .n = DEPTH};
		uint32_t index;
		int r = stacks_resolve(s, b, (struct process_id){start_ns, getpid()}, &raw, NULL,
				       false, &index);

		if (r)
			bench_die("resolve", r);
	}
	from = own_cpu_ns() - from;
	profile_batch_free(b);
	return from;
}

/* Returns the CPU time of parse children that have ended. */
static uint64_t children_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NSEC_PER_SEC +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static void one_round(const struct raw_frame *frames, double *ret_cold, double *ret_warm)
{
	const struct files_config fc = {};
	uint64_t children = children_ns(), start_ns, cold_ns;
	struct files *files;
	struct stacks *s;
	int r = files_new(&fc, &files);

	if (r)
		bench_die("files", r);
	s = open_stacks(files, &start_ns);
	cold_ns = resolve_ns(s, start_ns, frames);
	*ret_warm = FRAMES * 1e9 / resolve_ns(s, start_ns, frames);
	stacks_free(s);
	files_free(files);
	*ret_cold = FRAMES * 1e9 / (cold_ns + children_ns() - children);
}

int main(int argc, char **argv)
{
	_cleanup_free_ struct raw_frame *frames = xcalloc(FRAMES, sizeof(*frames));
	double cold[ROUNDS], warm[ROUNDS];
	struct text text = {};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	if (!dlopen(LIBRARY, RTLD_LAZY) || !dl_iterate_phdr(find_library, &text)) {
		fprintf(stderr, "stack_bench: skip: no %s on this machine\n", LIBRARY);
		return 0;
	}
	for (unsigned i = 0; i < FRAMES; i++)
		frames[i] = (struct raw_frame){.exec_id = 1,
					       .address = text.from + text.n_bytes / FRAMES * i};
	for (int i = 0; i < ROUNDS; i++)
		one_round(frames, &cold[i], &warm[i]);
	bench_rounds("symbol.cold", cold, ROUNDS, "symbols/CPU s", "",
		     "30000 of libLLVM-14, its index of 110 MB made first, by the parse child");
	bench_rounds("symbol.warm", warm, ROUNDS, "symbols/CPU s", "", "the same ones again");
	return 0;
}
