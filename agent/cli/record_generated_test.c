/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that a program makes at run time, with frame pointers, in each kind of memory. The stacks in
 * such code must be whole, and a perf map gives it names. The native code around it has no frame
 * pointers. The programs are compiled here, so their chain of calls is known. All are recorded at
 * once.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

#define ENOUGH_NS (300 * NSEC_PER_MSEC)

static const char program[] =
	"#define _GNU_SOURCE\n"
	"#include <signal.h>\n"
	"#include <stdio.h>\n"
	"#include <string.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"#define IS(x) (!strcmp(how, x))\n"
	"static volatile unsigned long sink;\n"
	"KEEP void leaf(void) { for (int i = 0; i < 2000; i++) sink += i * sink; }\n"
	"KEEP void one(void (*made)(void)) { made(); __asm__(\"\"); }\n"
	"static unsigned char *where, *write_to;\n"
	/* writes push %rbp; mov %rsp,%rbp; mov $leaf,%rax; call *%rax; pop %rbp; ret */
	"static void make_caller(unsigned char *to)\n"
	"{\n"
	"	void *f = (void *)leaf;\n"
	"	memcpy(to, \"\\x55\\x48\\x89\\xe5\\x48\\xb8\", 6);\n"
	"	memcpy(to + 6, &f, 8);\n"
	"	memcpy(to + 14, \"\\xff\\xd0\\x5d\\xc3\", 4);\n"
	"}\n"
	/* writes push %rbp; mov %rsp,%rbp; mov $8000,%ecx; 1: dec %ecx; jnz 1b; pop %rbp; ret */
	"static void make_leaf(unsigned char *to)\n"
	"{\n"
	"	memcpy(to, "
	"\"\\x55\\x48\\x89\\xe5\\xb9\\x40\\x1f\\0\\0\\xff\\xc9\\x75\\xfc\\x5d\\xc3\", 15);\n"
	"}\n"
	"static int map(const char *how)\n"
	"{\n"
	"	int fd = -1, kind = IS(\"shared\") ? MAP_SHARED : MAP_PRIVATE;\n"
	"	if (IS(\"memfd\")) {\n"
	"		fd = memfd_create(\"doublemapper\", 0);\n"
	"		if (ftruncate(fd, 4096)) return -1;\n"
	"		write_to = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);\n"
	"		where = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);\n"
	"		return 0;\n"
	"	}\n"
	"	where = write_to = mmap(0, 4096, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, "
	"0);\n"
	"	return 0;\n"
	"}\n"
	"static void write_map(void)\n"
	"{\n"
	"	char path[64];\n"
	"	sprintf(path, \"/tmp/perf-%d.map\", getpid());\n"
	"	FILE *f = fopen(path, \"w\");\n"
	"	fprintf(f, \"%lx 80 made_caller\\n%lx 80 made_leaf\\n\", (long)where, (long)where "
	"+ "
	"256);\n"
	"	fclose(f);\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	prctl(PR_SET_NAME, argv[2]);\n"
	"	if (map(argv[1])) return 3;\n"
	"	make_caller(write_to);\n"
	"	make_leaf(write_to + 256);\n"
	"	if (where == write_to) mprotect(where, 4096, PROT_READ | PROT_EXEC);\n"
	"	if (argc > 3) write_map();\n"
	"	close(1);\n"
	"	for (;;) {\n"
	"		one((void (*)(void))where);\n"
	"		one((void (*)(void))(where + 256));\n"
	"	}\n"
	"}\n";

struct way {
	const char *how;
	bool has_map;
};
static const struct way ways[] = {
	{"private", false}, {"memfd", false}, {"shared", false},
	{"private", true},  {"memfd", true},  {"shared", true},
};

static char *name_of(const struct way *w)
{
	return xasprintf("%s%s", w->how, w->has_map ? "-map" : "");
}

/* Starts the program. Its code is complete when it closes its output. */
static pid_t start(const struct way *w, const char *path)
{
	_cleanup_free_ char *name = name_of(w);

	return program_ready(path, (const char *const[]){"generated", w->how, name,
							 w->has_map ? "map" : NULL, NULL});
}

/*
 * Returns the number of samples of one program whose stacks contain the text. leaf true: counts
 * only samples in the native function that the generated code calls; false: counts only the other
 * samples.
 */
static uint64_t sum(const char *out, const struct way *w, const char *text, bool leaf)
{
	_cleanup_free_ char *name = name_of(w), *process = xasprintf("%s;[p] ", name);
	uint64_t in_leaf = FOLDED_SUM(out, process, text, ";leaf");

	return leaf ? in_leaf : FOLDED_SUM(out, process, text) - in_leaf;
}

static void check(const char *out, const struct way *w, const char *said)
{
	const char *caller = w->has_map ? ";main;one;made_caller;leaf" : ";main;one;[";
	const char *made = w->has_map ? ";main;one;made_leaf" : ";main;one;[";
	uint64_t all = sum(out, w, "", true) + sum(out, w, "", false);
	uint64_t in_leaf = sum(out, w, caller, true), in_made = sum(out, w, made, false);
	uint64_t ends = sum(out, w, "[unwind: ", true) + sum(out, w, "[unwind: ", false);

	print_message("%s%s: of %lu samples %lu in leaf, %lu in code made, %lu end early\n", w->how,
		      w->has_map ? " with a map" : "", all, in_leaf, in_made, ends);
	if (all < 100 || in_leaf < all / 10 || in_made < all / 10 ||
	    (in_leaf + in_made) * 100 < all * 97 || ends * 100 > all * 3)
		fail_msg("%s: %s", w->how, said);
}

static void code_made_at_run_time(void **state)
{
	_cleanup_free_ char *path, *out = file_in_dir("a.folded");
	pid_t pids[ARRAY_SIZE(ways)];
	struct run r;

	(void)state;
	NEED_BPF();
	path = program_in_dir(program, "generated", "");
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		pids[i] = start(&ways[i], path);
	run_each(&r, pids, ARRAY_SIZE(ways), ENOUGH_NS, out);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		_cleanup_free_ char *map = xasprintf("/tmp/perf-%d.map", pids[i]);

		unlink(map);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		check(out, &ways[i], r.text.data);
	run_free(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_made_at_run_time),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
