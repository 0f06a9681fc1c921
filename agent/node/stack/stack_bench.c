/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What names cost: to index a large library in the parse child, and to resolve a frame
 * whose function was seen before and one whose was not. Addresses are libc's own code.
 */
#include "lib/base/bench.h"
#include "node/stack/internal.h"

#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#define DEPTH  30
#define STACKS 1000
#define ROUNDS 20

static void bench_index(struct parser *p, const char *name, const char *path, const char *against)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *full = xasprintf("symbol.%s", name);
	uint64_t from = now_mono_ns();
	struct elf_index *index;
	int r = fd < 0 ? -errno : parser_elf(p, fd, &index);

	if (r) {
		fprintf(stderr, "stack_bench: %s: %s, left out\n", path, strerror(-r));
		return;
	}
	bench_report(full, (now_mono_ns() - from) / 1e6, "ms", against);
	elf_index_unref(index);
}

struct text {
	uint64_t from, n_bytes;
};

/* The executable segment of libc. */
static int find_libc(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct text *t = arg;

	(void)size;
	if (!strstr(info->dlpi_name, "libc.so"))
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
		r = mappings_read(getpid(), *ret_start_ns, 1, &m);
	if (r)
		bench_die("own mappings", r);
	stacks_mappings(s, m);
	mappings_unref(m);
	return s;
}

static double resolve_ns(struct stacks *s, uint64_t start_ns, const struct raw_frame *frames)
{
	struct batch *b = batch_new();
	uint64_t from = now_mono_ns();

	for (unsigned i = 0; i < STACKS; i++) {
		struct raw_stack raw = {i + 1, frames + i * DEPTH, DEPTH, NULL};
		uint32_t index;
		int r = stacks_resolve(s, b, getpid(), start_ns, &raw, NULL, false, &index);

		if (r)
			bench_die("resolve", r);
	}
	from = now_mono_ns() - from;
	batch_free(b);
	return (double)from / STACKS / DEPTH;
}

static void bench_resolve(struct files *files)
{
	_cleanup_free_ struct raw_frame *frames = xcalloc(STACKS * DEPTH, sizeof(*frames));
	struct text text = {};
	uint64_t start_ns;
	struct stacks *s = open_stacks(files, &start_ns);
	double sum = 0;

	if (!dl_iterate_phdr(find_libc, &text))
		bench_die("libc", ENOENT);
	for (unsigned i = 0; i < STACKS * DEPTH; i++)
		frames[i] = (struct raw_frame){.exec_id = 1,
					       .address = text.from +
							  (i / DEPTH % 100 * DEPTH + i % DEPTH) *
								  997 % text.n_bytes};
	bench_report("symbol.first_stacks", resolve_ns(s, start_ns, frames), "ns/frame",
		     "with the index of libc made");
	for (unsigned i = 0; i < ROUNDS; i++)
		sum += resolve_ns(s, start_ns, frames);
	bench_report("symbol.frame", sum / ROUNDS, "ns/frame", "symbol.first_stacks");
	stacks_free(s);
}

int main(int argc, char **argv)
{
	struct parser_config c = {};
	struct files_config fc = {};
	struct parser *parser;
	struct files *files;
	int r;

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	r = parser_new(&c, &parser);
	if (r)
		bench_die("parse child", r);
	bench_index(parser, "index_libc", "/lib/x86_64-linux-gnu/libc.so.6",
		    "once a file and node");
	bench_index(parser, "index_libLLVM", "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
		    "its deadline of 10000");
	parser_free(parser);
	r = files_new(&fc, &files);
	if (r)
		bench_die("files", r);
	bench_resolve(files);
	files_free(files);
	return 0;
}
