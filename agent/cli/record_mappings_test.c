/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process maps and unmaps libraries at one address. Each sample must have the names and callers
 * of the library that was mapped when it was taken, or a marker frame ("[unwind: ...]"). The
 * program calls each library from a function of its own, whose name shows which library it was.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <inttypes.h>
#include <stdlib.h>

static const char program[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n"
	"#include <fcntl.h>\n"
	"#include <signal.h>\n"
	"#include <stdio.h>\n"
	"#include <stdlib.h>\n"
	"#include <string.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/personality.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <time.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"static char bytes[1 << 20];\n"
	"static void copy(const char *from, const char *to, int flags)\n"
	"{\n"
	"	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | flags, 0755);\n"
	"	long n = read(in, bytes, sizeof(bytes));\n"
	"	if (write(out, bytes, n) != n) _exit(3);\n"
	"	close(in);\n"
	"	close(out);\n"
	"}\n"
	"static const char *put(const char *mode, const char *library)\n"
	"{\n"
	"	static char there[4096], new[4096];\n"
	"	if (!strcmp(mode, \"swap\") || !strcmp(mode, \"many\")) return library;\n"
	"	snprintf(there, sizeof(there), \"%.4000s.so\", getenv(\"AT\"));\n"
	"	snprintf(new, sizeof(new), \"%.4000s.new\", getenv(\"AT\"));\n"
	"	if (!strcmp(mode, \"rewrite\")) {\n"
	"		copy(library, there, O_TRUNC);\n"
	"	} else {\n"
	"		copy(library, new, O_EXCL);\n"
	"		rename(new, there);\n"
	"	}\n"
	"	return there;\n"
	"}\n"
	"static double now(void)\n"
	"{\n"
	"	struct timespec t;\n"
	"	clock_gettime(CLOCK_MONOTONIC, &t);\n"
	"	return t.tv_sec + t.tv_nsec / 1e9;\n"
	"}\n"
	"KEEP void calls(const char *path, const char *name)\n"
	"{\n"
	"	void *h = dlopen(path, RTLD_NOW);\n"
	"	void (*f)(long) = (void (*)(long))dlsym(h, name);\n"
	"	double end = now() + atof(getenv(\"SECONDS\"));\n"
	"	while (now() < end) f(20000);\n"
	"	dlclose(h);\n"
	"}\n"
	"KEEP void calls_first(const char *p) { calls(p, \"in_first\"); __asm__ volatile(\"\"); }\n"
	"KEEP void calls_second(const char *p) { calls(p, \"in_second\"); __asm__ volatile(\"\"); "
	"}\n"
	"/* Each library has its turn in a program of its own, at the same addresses. */\n"
	"static void turns(char **argv)\n"
	"{\n"
	"	int second = argv[4] && *argv[4] == '2';\n"
	"	if (argv[4]) (second ? calls_second : calls_first)(argv[second ? 3 : 2]);\n"
	"	personality(ADDR_NO_RANDOMIZE);\n"
	"	execl(argv[0], argv[0], argv[1], argv[2], argv[3], second ? \"1\" : \"2\", NULL);\n"
	"	_exit(4);\n"
	"}\n"
	"/* Of one page each; every other one is protected: so they do not become one. */\n"
	"static void map_many(void)\n"
	"{\n"
	"	long n = 60000 * 4096L;\n"
	"	char *at = mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
	"	for (long i = 0; i < n; i += 8192)\n"
	"		if (at == MAP_FAILED || mprotect(at + i, 4096, PROT_READ)) _exit(5);\n"
	"}\n"
	"int main(int argc, char **argv)\n"
	"{\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	if (!strcmp(argv[1], \"many\")) map_many();\n"
	"	if (!strcmp(argv[1], \"exec\")) turns(argv);\n"
	"	for (;;) {\n"
	"		calls_first(put(argv[1], argv[2]));\n"
	"		calls_second(put(argv[1], argv[3]));\n"
	"	}\n"
	"}\n";
/*
 * The libraries have frames of different sizes, so the unwind rules of one library find a wrong
 * caller in another library.
 */
static const char library[] =
	"#include <string.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"#define FILL char a[BYTES]; memset(a, 1, BYTES); __asm__ volatile(\"\" : : \"r\"(a) : "
	"\"memory\")\n"
	"static volatile unsigned long sink;\n"
	"static KEEP void LEAF(long n) { FILL; while (n--) sink += n * sink; }\n"
	"static KEEP void MIDDLE(long n) { FILL; LEAF(n); __asm__ volatile(\"\"); }\n"
	"void IN(long n) { MIDDLE(n); __asm__ volatile(\"\"); }\n";

static pid_t start(const char *mode)
{
	bool is_written = streq(mode, "written");
	_cleanup_free_ char *path = file_in_dir("host");
	_cleanup_free_ char *first = file_in_dir(is_written ? "alpha.so" : "first.so");
	_cleanup_free_ char *second = file_in_dir("second.so"), *at = file_in_dir("library");

	setenv("AT", at, 1);
	setenv("SECONDS",
	       is_written				    ? "1000"
	       : streq(mode, "swap") || streq(mode, "many") ? "0.05"
							    : "0.4",
	       1);
	return PROGRAM_START(path, mode, first, second);
}

/* The kernel also has functions with "_leaf" in their names. */
static bool is_leaf(const char *line)
{
	return strstr(line, "first_leaf") || strstr(line, "second_leaf");
}

/* Returns the number of samples in the libraries' leaf functions whose stacks contain the text. */
static uint64_t leaves(const char *path, const char *text)
{
	return FOLDED_SUM(path, "first_leaf", text) + FOLDED_SUM(path, "second_leaf", text);
}

static void print_rootless(const char *path)
{
	_cleanup_free_ char *all = NULL;
	char *save = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 24, &all, NULL), 0);
	for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (is_leaf(line) && !strstr(line, ";main;") && !strstr(line, "[unwind: "))
			print_message("without a caller: %s\n", line);
}

/* right_percent: at least this percentage of the samples must have the right names. */
static void check(const char *mode, unsigned right_percent)
{
	_cleanup_free_ char *out = file_in_dir("a.folded"), *pid_text = NULL;
	uint64_t all, right, crossed, rootless;
	pid_t pid = start(mode);
	struct run r;

	pid_text = xasprintf("%d", pid);
	run_begin(&r, pid_text, "997", out);
	/* If the mappings are many, record still reads them when the first samples come. */
	wait_cpu(pid, (streq(mode, "many") ? 4 : 2) * NSEC_PER_SEC);
	kill(pid, SIGSTOP); /* stopped, so that record has time to read the last mappings */
	run_stop(&r);
	program_end(pid);
	all = folded_sum(out, NULL);
	right = FOLDED_SUM(out, ";calls_first;calls;[l] in_first;[l] first_middle;", "first_leaf") +
		FOLDED_SUM(out, ";calls_second;calls;[l] in_second;[l] second_middle;",
			   "second_leaf");
	crossed = FOLDED_SUM(out, "calls_first;", "second_") +
		  FOLDED_SUM(out, "calls_second;", "first_") +
		  FOLDED_SUM(out, "first_leaf", "second_middle") +
		  FOLDED_SUM(out, "second_leaf", "first_middle");
	/* the number of samples that have neither a caller nor a marker */
	rootless = leaves(out, "") - leaves(out, ";main;") - leaves(out, "[unwind: ");
	print_message("%s: %" PRIu64 " samples, %" PRIu64 " right, %" PRIu64 " crossed, %" PRIu64
		      " without a caller\n",
		      mode, all, right, crossed, rootless);
	if (rootless)
		print_rootless(out);
	assert_true(all > 500);
	assert_int_equal(crossed, 0);
	assert_int_equal(rootless, 0);
	assert_true(right * 100 >= all * right_percent);
	run_free(&r);
}

static void libraries_that_take_turns(void **state)
{
	(void)state;
	NEED_BPF();
	check("swap", 80);
}

/* Whether a process may have n mappings. The default limit is 65,530. */
static bool may_have_mappings(uint64_t n)
{
	_cleanup_free_ char *text = NULL;
	uint64_t most = 0;

	assert_int_equal(file_read(AT_FDCWD, "/proc/sys/vm/max_map_count", 64, &text, NULL), 0);
	text[strcspn(text, "\n")] = '\0';
	assert_int_equal(str_to_u64(text, UINT64_MAX, &most), 0);
	return n <= most;
}

/* The process has so many mappings that record cannot read them each time the libraries change. */
static void libraries_that_take_turns_among_60000_mappings(void **state)
{
	(void)state;
	NEED_BPF();
	if (!may_have_mappings(61000)) {
		print_message("skipped: vm.max_map_count is below 61,000 here\n");
		skip();
	}
	check("many", 80); /* measured: 98 on an idle machine; 49 without the BPF map `images` */
}

/*
 * Each time, another file gets the name of the library. podflame must parse this file first. Until
 * then, samples have a marker. A turn lasts 0.4 s, and on a busy machine podflame needs half of it.
 */
#define AFTER_PARSING_PERCENT 25
static void a_library_that_is_replaced_under_its_name(void **state)
{
	(void)state;
	NEED_BPF();
	check("rename", AFTER_PARSING_PERCENT);
}

/* The same file is overwritten with other bytes. */
static void a_library_that_is_written_over(void **state)
{
	(void)state;
	NEED_BPF();
	check("rewrite", AFTER_PARSING_PERCENT);
}

/*
 * exec maps the same program at the same addresses. What podflame has read before the exec is not
 * valid any more.
 */
static void a_program_that_starts_itself_anew(void **state)
{
	(void)state;
	NEED_BPF();
	check("exec", 80);
}

/* Copies all bytes of one file into another one of the same length. */
static void write_over(const char *from, const char *to)
{
	_cleanup_free_ char *path = file_in_dir(from), *there = file_in_dir(to), *bytes = NULL;
	_cleanup_close_ int fd = open(there, O_WRONLY);
	struct stat st;
	size_t n;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &bytes, &n), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal((size_t)st.st_size, n);
	assert_int_equal(pwrite(fd, bytes, n, 0), (ssize_t)n);
}

/*
 * alpha.so and betaa.so have the same code, but other names. The test overwrites the file while its
 * code runs. The program maps and unmaps nothing, so the kernel reports no change to podflame.
 */
static void a_library_that_is_written_over_while_it_runs(void **state)
{
	_cleanup_free_ char *out = file_in_dir("a.folded"), *pid_text = NULL;
	uint64_t before_ns, after_ns, alpha, betaa, marked;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = start("written");
	pid_text = xasprintf("%d", pid);
	before_ns = program_cpu_ns(pid);
	run_begin(&r, pid_text, "997", out);
	wait_cpu(pid, NSEC_PER_SEC / 2);
	write_over("betaa.so", "library.so");
	after_ns = program_cpu_ns(pid);
	before_ns = after_ns - before_ns;
	wait_cpu(pid, 3 * NSEC_PER_SEC);
	kill(pid, SIGSTOP);
	after_ns = program_cpu_ns(pid) - after_ns;
	run_stop(&r);
	program_end(pid);
	alpha = folded_sum(out, "alpha_leaf");
	betaa = FOLDED_SUM(out, ";calls;[l] in_first;[l] betaa_middle;", "betaa_leaf");
	marked = folded_sum(out, "[unwind: code_differs_from_file]");
	if (alpha > before_ns / NSEC_PER_MSEC + 10)
		fail_msg("%llu samples of alpha in the %llu ms before the file was written over; "
			 "then %llu ms, %llu of betaa, %llu marked",
			 (unsigned long long)alpha, (unsigned long long)(before_ns / NSEC_PER_MSEC),
			 (unsigned long long)(after_ns / NSEC_PER_MSEC), (unsigned long long)betaa,
			 (unsigned long long)marked);
	assert_true(betaa >= after_ns / NSEC_PER_MSEC / 4);
	run_free(&r);
}

static int begin(void **state)
{
	int r = dir_make(state);

	if (r)
		return r;
	free(program_in_dir(program, "host", ""));
	free(program_in_dir(
		library, "first.so",
		"-shared -fPIC -DBYTES=40 -DLEAF=first_leaf -DMIDDLE=first_middle -DIN=in_first"));
	free(program_in_dir(library, "second.so",
			    "-shared -fPIC -DBYTES=600 -DLEAF=second_leaf -DMIDDLE=second_middle "
			    "-DIN=in_second"));
	free(program_in_dir(
		library, "alpha.so",
		"-shared -fPIC -DBYTES=40 -DLEAF=alpha_leaf -DMIDDLE=alpha_middle -DIN=in_first"));
	free(program_in_dir(
		library, "betaa.so",
		"-shared -fPIC -DBYTES=40 -DLEAF=betaa_leaf -DMIDDLE=betaa_middle -DIN=in_first"));
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(libraries_that_take_turns),
		cmocka_unit_test(libraries_that_take_turns_among_60000_mappings),
		cmocka_unit_test(a_library_that_is_replaced_under_its_name),
		cmocka_unit_test(a_library_that_is_written_over),
		cmocka_unit_test(a_program_that_starts_itself_anew),
		cmocka_unit_test(a_library_that_is_written_over_while_it_runs),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, begin, dir_remove);
}
