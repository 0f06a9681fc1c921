/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame record of Node.js, and of code in a memfd: whole stacks with and without a perf map, and
 * names if there is one.
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <stdlib.h>

/*
 * hot does three times as much work as cold. Both are too long to be inlined. Code after an await
 * is called with arguments that its caller has not pushed.
 */
static const char program[] =
	"function work(n) { let s = 0; for (let i = 0; i < n; i++) s = (31 * "
	"s + i) | 0; return s }\n"
	"function hot(n) { return work(3 * n) + 1 }\n"
	"function cold(n) { return work(n) + 1 }\n"
	"async function turn() { await null; const end = Date.now() + 50; let s = 0;\n"
	"  while (Date.now() < end) s += hot(10000) + cold(10000);\n"
	"  setImmediate(turn); return s }\n"
	"turn()\n";

static pid_t start_node(const char *options)
{
	_cleanup_free_ char *path = file_in_dir("turn.js"), *command = NULL;
	pid_t pid;

	assert_int_equal(file_write_atomic(path, program, strlen(program), 0644), 0);
	/* in dir, because V8 also writes a log file into its working directory */
	command = xasprintf("cd %s && exec node %s %s", dir, options, path);
	pid = PROGRAM_START("/bin/sh", "-c", command);
	program_runs(pid, "node");
	/* until node has started and has compiled the functions */
	wait_cpu(pid, 500 * NSEC_PER_MSEC);
	return pid;
}

static char *record(pid_t pid)
{
	_cleanup_free_ char *number = xasprintf("%d", pid), *out = file_in_dir("node.folded");
	struct run r;

	run_start(&r, (const char *[]){"-p", number, "-F", "499", "-o", out, NULL});
	assert_true(run_says(&r, "recording"));
	wait_cpu(pid, 2000 * NSEC_PER_MSEC);
	kill(r.pid, SIGINT);
	assert_int_equal(run_end(&r), 0);
	run_free(&r);
	return TAKE_PTR(out);
}

static void end(pid_t pid)
{
	_cleanup_free_ char *map = xasprintf("/tmp/perf-%d.map", pid);

	program_end(pid);
	unlink(map);
}

static void assert_whole(const char *folded)
{
	uint64_t all = folded_sum(folded, NULL);

	assert_true(all > 100);
	assert_true(100 * folded_sum(folded, "[unwind: ") <= all);
	/* the other samples are in helper threads of node */
	assert_true(100 * folded_sum(folded, "node::Start") >= 80 * all);
}

static void node_without_a_map(void **state)
{
	_cleanup_free_ char *folded = NULL;
	pid_t pid;

	(void)state;
	NEED_BPF();
	if (!program_here("node"))
		skip();
	pid = start_node("");
	folded = record(pid);
	assert_whole(folded);
	assert_int_equal(folded_sum(folded, ";hot"), 0);
	end(pid);
}

static void node_with_a_map(void **state)
{
	_cleanup_free_ char *folded = NULL;
	uint64_t all, hot, cold;
	pid_t pid;

	(void)state;
	NEED_BPF();
	if (!program_here("node"))
		skip();
	pid = start_node("--perf-basic-prof --interpreted-frames-native-stack "
			 "--max-inlined-bytecode-size=0");
	folded = record(pid);
	assert_whole(folded);
	all = folded_sum(folded, NULL);
	hot = folded_sum(folded, ";turn;hot;work");
	cold = folded_sum(folded, ";turn;cold;work");
	print_message("%llu samples, %llu in hot, %llu in cold\n", (unsigned long long)all,
		      (unsigned long long)hot, (unsigned long long)cold);
	assert_true(100 * (hot + cold) > 90 * folded_sum(folded, ";turn"));
	assert_true(100 * hot > 65 * (hot + cold) && 100 * hot < 85 * (hot + cold));
	end(pid);
}

/*
 * The program writes code through one mapping of a memfd, and runs it in another one: push %rbp;
 * mov %rsp,%rbp; mov $2000000,%ecx; dec %ecx; jne; pop %rbp; ret.
 */
static const char memfd_program[] =
	"#define _GNU_SOURCE\n"
	"#include <stdio.h>\n"
	"#include <string.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"static const char code[] = \"\\x55\\x48\\x89\\xe5\\xb9\\x80\\x84\\x1e\\x00\"\n"
	"			   \"\\xff\\xc9\\x75\\xfc\\x5d\\xc3\";\n"
	"int main(void)\n"
	"{\n"
	"	int fd = memfd_create(\"jit\", 0);\n"
	"	char path[64], *to, *at;\n"
	"	FILE *f;\n"
	"	prctl(PR_SET_PDEATHSIG, 9);\n"
	"	if (ftruncate(fd, 4096)) return 1;\n"
	"	to = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);\n"
	"	at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);\n"
	"	memcpy(to, code, sizeof(code));\n"
	"	snprintf(path, sizeof(path), \"/tmp/perf-%d.map\", getpid());\n"
	"	f = fopen(path, \"w\");\n"
	"	fprintf(f, \"%lx %lx made_in_memory\\n\", (long)at, (long)sizeof(code));\n"
	"	fclose(f);\n"
	"	for (;;) ((void (*)(void))at)();\n"
	"}\n";

static pid_t start_memfd(void)
{
	_cleanup_free_ char *path = program_in_dir(memfd_program, "jit", "");
	pid_t pid = PROGRAM_START(path);

	wait_cpu(pid, 100 * NSEC_PER_MSEC);
	return pid;
}

/*
 * No file of this program has the symbol or text by which podflame recognises a runtime. Only its
 * generated code shows that it may have a perf map.
 */
static void code_of_a_memfd_with_a_map(void **state)
{
	_cleanup_free_ char *folded = NULL;
	uint64_t all, named;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = start_memfd();
	folded = record(pid);
	end(pid);
	all = folded_sum(folded, NULL);
	named = folded_sum(folded, ";main;made_in_memory ");
	print_message("%llu samples, %llu named\n", (unsigned long long)all,
		      (unsigned long long)named);
	assert_true(all > 100 && 100 * named >= 95 * all);
}

static int make_dir(void **state)
{
	(void)state;
	return testdir_make(dir);
}

static int remove_dir(void **state)
{
	(void)state;
	return testdir_remove(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_without_a_map),
		cmocka_unit_test(node_with_a_map),
		cmocka_unit_test(code_of_a_memfd_with_a_map),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
