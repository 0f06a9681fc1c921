/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that have copied their code into memory without a file. They are built without frame
 * pointers. Their stacks must be whole. If the memory gets other code later, the stacks must have a
 * marker frame ("[unwind: code_differs_from_file]"). The programs are compiled here, so their chain
 * of calls is known. All are recorded at once.
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
	"KEEP void other(void) { for (int i = 0; i < 2000; i++) sink ^= i - sink; }\n"
	"KEEP void three(void) { leaf(); __asm__(\"\"); }\n"
	"KEEP void two(void) { three(); __asm__(\"\"); }\n"
	"KEEP void one(void) { two(); __asm__(\"\"); }\n"
	/* Two pages with code that has no frame. */
	"__asm__(\".pushsection .text.cold_pages,\\\"ax\\\",@progbits\\n.balign 4096\\n\"\n"
	"	\".globl cold\\n.type cold,@function\\ncold: .cfi_startproc\\n\"\n"
	"	\".rept 4095\\n.byte 0x66, 0x90\\n.endr\\nnop\\n\"\n"
	"	\"ret\\n.cfi_endproc\\n.size cold, . - cold\\n.popsection\");\n"
	"void cold(void);\n"
	"static char *start, *end;\n"
	"static void find_text(void)\n"
	"{\n"
	"	unsigned long from, to, here = (unsigned long)find_text;\n"
	"	FILE *f = fopen(\"/proc/self/maps\", \"r\");\n"
	"	char line[512], perms[8];\n"
	"	while (fgets(line, sizeof(line), f))\n"
	"		if (sscanf(line, \"%lx-%lx %7s\", &from, &to, perms) == 3 && from <= here "
	"&& here < to)\n"
	"			start = (char *)from, end = (char *)to;\n"
	"	fclose(f);\n"
	"}\n"
	"static void replace(char *at, size_t n, int flags, int fd)\n"
	"{\n"
	"	char *p = mmap(0, n, PROT_READ | PROT_WRITE, flags, fd, 0);\n"
	"	memcpy(p, at, n);\n"
	"	mprotect(p, n, PROT_READ | PROT_WRITE | PROT_EXEC);\n"
	"	if (mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at) _exit(3);\n"
	"}\n"
	/* Code as of a just-in-time compiler, with a frame. */
	"static void generate(char *at)\n"
	"{\n"
	"	memset(at, 0x90, 4096);\n"
	"	memcpy(at, \"\\x55\\x48\\x89\\xe5\", 4);\n"
	"	memcpy(at + 4094, \"\\x5d\\xc3\", 2);\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	const char *how = argv[1];\n"
	"	char *page = (char *)cold;\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	prctl(PR_SET_NAME, argv[2]);\n"
	"	find_text();\n"
	"	if (IS(\"anonymous\") || IS(\"patched\") || IS(\"mixed\"))\n"
	"		replace(start, end - start, MAP_PRIVATE | MAP_ANONYMOUS, -1);\n"
	"	if (IS(\"shared\"))\n"
	"		replace(start, end - start, MAP_SHARED | MAP_ANONYMOUS, -1);\n"
	"	if (IS(\"memfd\")) {\n"
	"		int fd = memfd_create(\"text\", 0);\n"
	"		if (ftruncate(fd, end - start)) return 4;\n"
	"		replace(start, end - start, MAP_SHARED, fd);\n"
	"		close(fd);\n"
	"	}\n"
	"	if (IS(\"part\") || IS(\"generated\"))\n"
	"		replace(page, 4096, MAP_PRIVATE | MAP_ANONYMOUS, -1);\n"
	"	if (IS(\"generated\") || IS(\"mixed\"))\n"
	"		generate(page);\n"
	"	if (IS(\"patched\"))\n"
	"		memcpy((char *)leaf, (char *)other, (char *)three - (char *)other);\n"
	"	close(1);\n"
	"	for (;;) {\n"
	"		one();\n"
	"		cold(); cold(); cold(); cold();\n"
	"	}\n"
	"}\n";

struct way {
	const char *how;
	bool is_static;
	bool has_cold;	 /* samples must be in `cold`, whose code is as in the file */
	bool has_leaf;	 /* samples must be in `leaf`, whose code is as in the file */
	bool has_marker; /* samples must have the marker of code that differs from the file */
};
static const struct way ways[] = {
	{"plain", false, true, true, false},	  {"anonymous", false, true, true, false},
	{"anonymous", true, true, true, false},	  {"shared", false, true, true, false},
	{"memfd", false, true, true, false},	  {"part", false, true, true, false},
	{"generated", false, false, true, false}, {"mixed", false, false, true, true},
	{"patched", false, true, false, true},
};

static char *name_of(const struct way *w)
{
	return xasprintf("%.6s%s", w->how, w->is_static ? "-static" : "");
}

/* Starts the program. It has moved its code when it closes its output. */
static pid_t start(const struct way *w, const char *path)
{
	_cleanup_free_ char *name = name_of(w);

	return program_ready(path, (const char *const[]){"copies", w->how, name, NULL});
}

/*
 * Returns the number of samples of one program whose stacks contain the text; NULL: of all its
 * samples.
 */
static uint64_t sum(const char *out, const struct way *w, const char *text)
{
	_cleanup_free_ char *name = name_of(w), *process = xasprintf("%s;[p] ", name);

	return FOLDED_SUM(out, process, text);
}

static void check(const char *out, const struct way *w, const char *said)
{
	uint64_t all = sum(out, w, NULL), leaf = sum(out, w, ";main;one;two;three;leaf");
	uint64_t cold = sum(out, w, ";main;cold"), marker = sum(out, w, "code_differs_from_file");
	uint64_t right = leaf + cold;

	print_message("%s%s: of %lu samples %lu in leaf, %lu in cold, %lu markers\n", w->how,
		      w->is_static ? " (static)" : "", all, leaf, cold, marker);
	if (all < 100 || !leaf != !w->has_leaf || !cold != !w->has_cold ||
	    !marker != !w->has_marker || sum(out, w, ";leaf") != leaf ||
	    sum(out, w, ";cold") != cold || sum(out, w, "code_not_compared"))
		fail_msg("%s: %s", w->how, said);
	if (w->has_leaf && w->has_cold && right * 100 < all * 97)
		fail_msg("%s: %s", w->how, said);
}

static void copies_of_text(void **state)
{
	_cleanup_free_ char *pie, *fixed, *out = file_in_dir("a.folded");
	pid_t pids[ARRAY_SIZE(ways)];
	struct run r;

	(void)state;
	NEED_BPF();
	pie = program_in_dir(program, "copies", "-fno-reorder-functions -pie -fPIE");
	fixed = program_in_dir(program, "copies_static", "-fno-reorder-functions -static -no-pie");
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		pids[i] = start(&ways[i], ways[i].is_static ? fixed : pie);
	run_each(&r, pids, ARRAY_SIZE(ways), ENOUGH_NS, out);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		check(out, &ways[i], r.text.data);
	run_free(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_of_text),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
