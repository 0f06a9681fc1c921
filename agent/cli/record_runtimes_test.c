/* SPDX-License-Identifier: Apache-2.0 */
/*
 * podflame record looks for a runtime while the runtime's code moves, or cannot be executed for a
 * moment. The profile must have the runtime's functions, or a marker frame ("[unwind: ...]").
 */
#include "cli/testrun.h"
#include "node/parse/parse.h"

#include <inttypes.h>
#include <stdlib.h>

/* The program's second phase begins with SIGUSR1. */
static const char lua_host[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n"
	"#include <link.h>\n"
	"#include <signal.h>\n"
	"#include <stdio.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"#define LUA \"liblua5.4.so.0\"\n"
	"static const char program[] =\n"
	"	\"function hot() local s = 0\\n\"\n"
	"	\"for i = 1, 100000 do s = s + i % 7 end; return s end\\n\"\n"
	"	\"function turn() local s = hot(); return s end\\n\";\n"
	"static volatile sig_atomic_t second;\n"
	"static void on_signal(int number) { (void)number; second = 1; }\n"
	"static void *symbol(void *h, const char *name)\n"
	"{\n"
	"	void *at = dlsym(h, name);\n"
	"	if (!at) _exit(2);\n"
	"	return at;\n"
	"}\n"
	"static void *open_lua(void)\n"
	"{\n"
	"	void *h = dlopen(LUA, RTLD_NOW);\n"
	"	if (!h) _exit(3);\n"
	"	return h;\n"
	"}\n"
	"KEEP void runs(void *h, int until)\n"
	"{\n"
	"	void *(*new)(void) = symbol(h, \"luaL_newstate\");\n"
	"	void (*libraries)(void *) = symbol(h, \"luaL_openlibs\");\n"
	"	int (*load)(void *, const char *) = symbol(h, \"luaL_loadstring\");\n"
	"	int (*call)(void *, int, int, int, long, void *) = symbol(h, \"lua_pcallk\");\n"
	"	int (*global)(void *, const char *) = symbol(h, \"lua_getglobal\");\n"
	"	void (*done)(void *) = symbol(h, \"lua_close\");\n"
	"	void *l = new();\n"
	"	libraries(l);\n"
	"	if (load(l, program) || call(l, 0, 0, 0, 0, 0)) _exit(4);\n"
	"	while (second != until)\n"
	"		if (!global(l, \"turn\") || call(l, 0, 0, 0, 0, 0)) _exit(4);\n"
	"	done(l);\n"
	"}\n"
	"KEEP void runs_first(void *h) { runs(h, 1); __asm__ volatile(\"\"); }\n"
	"KEEP void runs_second(void *h) { runs(h, 2); __asm__ volatile(\"\"); }\n"
	"int main(void)\n"
	"{\n"
	"	void *h, *first;\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	signal(SIGUSR1, on_signal);\n"
	"	h = open_lua();\n"
	"	first = symbol(h, \"lua_pcallk\");\n"
	"	runs_first(h);\n"
	"	dlclose(h);\n"
	"	/* What was its place is not free any more. */\n"
	"	first = (void *)((long)first & -4096);\n"
	"	if (mmap(first, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |\n"
	"		 MAP_FIXED_NOREPLACE, -1, 0) != first) _exit(5);\n"
	"	h = open_lua();\n"
	"	runs_second(h);\n"
	"	return 0;\n"
	"}\n";

/*
 * jit_one is generated code. It calls compile(). After SIGUSR1, compile() makes the page of jit_one
 * writable, works, and makes the page executable again. So while compile() works, the page of its
 * caller is not executable. All functions have frame pointers, as the code of JIT compilers does.
 */
static const char jit_host[] =
	"#define _GNU_SOURCE\n"
	"#include <signal.h>\n"
	"#include <stdio.h>\n"
	"#include <string.h>\n"
	"#include <sys/mman.h>\n"
	"#include <sys/prctl.h>\n"
	"#include <unistd.h>\n"
	"#define KEEP __attribute__((noinline, noclone))\n"
	"static unsigned char *page;\n"
	"static volatile unsigned long sink;\n"
	"static volatile sig_atomic_t second;\n"
	"static void on_signal(int number) { (void)number; second = 1; }\n"
	"KEEP void works(void) { for (long i = 0; i < 3000000; i++) sink += i * sink; }\n"
	"KEEP void writes(void)\n"
	"{\n"
	"	if (mprotect(page, 4096, PROT_READ | PROT_WRITE)) _exit(2);\n"
	"	works();\n"
	"	if (mprotect(page, 4096, PROT_READ | PROT_EXEC)) _exit(3);\n"
	"}\n"
	"KEEP void compile(void) { (second ? writes : works)(); __asm__ volatile(\"\"); }\n"
	"int main(void)\n"
	"{\n"
	"	/* push %rbp; mov %rsp,%rbp; movabs $compile,%rax; call *%rax; pop %rbp; ret */\n"
	"	unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0, 0, 0, 0, 0, 0,\n"
	"				0, 0, 0xff, 0xd0, 0x5d, 0xc3};\n"
	"	void (*to)(void) = compile;\n"
	"	char path[64];\n"
	"	FILE *f;\n"
	"	prctl(PR_SET_PDEATHSIG, SIGKILL);\n"
	"	signal(SIGUSR1, on_signal);\n"
	"	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,\n"
	"		    -1, 0);\n"
	"	memcpy(code + 6, &to, 8);\n"
	"	memcpy(page, code, sizeof(code));\n"
	"	mprotect(page, 4096, PROT_READ | PROT_EXEC);\n"
	"	snprintf(path, sizeof(path), \"/tmp/perf-%d.map\", getpid());\n"
	"	f = fopen(path, \"w\");\n"
	"	fprintf(f, \"%lx %zx jit_one\\n\", (long)page, sizeof(code));\n"
	"	fclose(f);\n"
	"	for (;;) ((void (*)(void))page)();\n"
	"}\n";

static pid_t start(const char *name)
{
	_cleanup_free_ char *path = file_in_dir(name);
	pid_t pid = PROGRAM_START(path);

	program_runs(pid, name);
	return pid;
}

static void begin_with(struct run *r, pid_t pid, const char *out)
{
	_cleanup_free_ char *pid_text = xasprintf("%d", pid);

	run_begin(r, pid_text, "499", out);
}

static void end_with(struct run *r, pid_t pid)
{
	kill(pid, SIGSTOP); /* stopped, so that record has time to read the last mappings */
	run_stop(r);
	run_free(r);
	program_end(pid);
}

/* Returns the number of samples that have neither a function of Lua nor a marker. */
static uint64_t lacking(const char *out, const char *phase)
{
	return folded_sum(out, phase) - FOLDED_SUM(out, phase, ";hot;") -
	       FOLDED_SUM(out, phase, "[unwind: ");
}

/*
 * Before and after the move, the process has the same number of pages of code, so record cannot
 * detect the move by this number.
 */
static void a_runtime_that_moved_is_found_again(void **state)
{
	_cleanup_free_ char *out = file_in_dir("lua.folded");
	uint64_t first, second, second_named;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = start("lua-host");
	begin_with(&r, pid, out);
	wait_cpu(pid, NSEC_PER_SEC);
	kill(pid, SIGUSR1);
	wait_cpu(pid, 3 * NSEC_PER_SEC);
	end_with(&r, pid);
	first = folded_sum(out, ";runs_first;");
	second = folded_sum(out, ";runs_second;");
	second_named = FOLDED_SUM(out, ";runs_second;", ";hot;");
	print_message("%" PRIu64 " samples, %" PRIu64 " lack Lua; then %" PRIu64 ", %" PRIu64
		      " have it, %" PRIu64 " lack it\n",
		      first, lacking(out, ";runs_first;"), second, second_named,
		      lacking(out, ";runs_second;"));
	assert_true(first > 100 && second > 500);
	/* A few samples are between two calls of hot, and have no function of Lua. */
	assert_true(lacking(out, ";runs_first;") * 100 <= 3 * first);
	assert_true(lacking(out, ";runs_second;") * 100 <= 3 * second);
	assert_true(second_named * 100 >= 40 * second);
}

/*
 * W^X: while a compiler writes into a page, code in that page cannot be executed, but a function in
 * it may be a caller.
 */
static void generated_code_that_cannot_run_now_keeps_its_names(void **state)
{
	_cleanup_free_ char *out = file_in_dir("jit.folded"), *map = NULL;
	uint64_t writing, named;
	struct run r;
	pid_t pid;

	(void)state;
	NEED_BPF();
	pid = start("jit-host");
	map = xasprintf("/tmp/perf-%d.map", pid);
	begin_with(&r, pid, out);
	wait_cpu(pid, NSEC_PER_SEC);
	kill(pid, SIGUSR1);
	wait_cpu(pid, 2 * NSEC_PER_SEC);
	end_with(&r, pid);
	unlink(map);
	writing = folded_sum(out, ";compile;writes;");
	named = folded_sum(out, ";main;jit_one;compile;writes;");
	print_message("%" PRIu64 " samples, %" PRIu64 " while it writes, %" PRIu64 " named\n",
		      folded_sum(out, NULL), writing, named);
	assert_true(writing > 500);
	/*
	 * A sample lacks the name only if record read the mappings while the page was not
	 * executable.
	 */
	assert_true(named * 100 >= writing * 80);
}

static int begin(void **state)
{
	int r = dir_make(state);

	if (r)
		return r;
	free(program_in_dir(lua_host, "lua-host", ""));
	free(program_in_dir(jit_host, "jit-host", "-fno-omit-frame-pointer"));
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_runtime_that_moved_is_found_again),
		cmocka_unit_test(generated_code_that_cannot_run_now_keeps_its_names),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, begin, dir_remove);
}
