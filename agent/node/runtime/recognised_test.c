// SPDX-License-Identifier: Apache-2.0
/*
 * Tests which runtimes podflame recognises: programs that the test makes, with the signs of each
 * runtime; programs that only link a runtime, which are not recognised; and real runtimes, if they
 * are installed.
 */
#include "node/runtime/testlive.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/testfolder.h"

/* ---- programs ---- */

/* Runs a command in the test's directory. It prints "x" when it is ready. */
static pid_t start(const char *command)
{
	_cleanup_free_ char *shell = xasprintf("cd %s && exec %s", dir, command);
	int out[2];
	pid_t pid;
	char c = 0;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		execl("/bin/sh", "sh", "-c", shell, NULL);
		_exit(127);
	}
	close(out[1]);
	if (read(out[0], &c, 1) != 1 || c != 'x')
		fail_msg("%s: it does not begin", command);
	close(out[0]);
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * Returns the names of the runtimes that are recognised in the process, separated by commas; a new
 * string.
 */
static char *seen_in(pid_t pid)
{
	const struct runtime_recognised *seen[RUNTIME_RECOGNISED_MAX];
	struct live_process l = {0};
	struct process_memory *memory;
	_cleanup_buf_ struct buf b = {0};
	bool again = false;
	size_t n;

	live_open(&l, pid);
	assert_int_equal(runtime_process_memory_open(l.maps->id, &memory), 0);
	n = runtime_recognised_find(
		&(struct runtime_look){.maps = l.maps,
				       .indexes = l.indexes,
				       .memory = runtime_process_memory(memory)},
		seen, &again);
	for (size_t i = 0; i < n; i++) {
		buf_printf(&b, "%s%s", i ? "," : "", seen[i]->name);
		assert_true(*seen[i]->title && *seen[i]->text);
	}
	runtime_process_memory_close(memory);
	live_forget(&l);
	return b.len ? buf_steal(&b) : xstrdup("");
}

/* ---- programs that the test makes ---- */

#define MAPS(protection)                                                                           \
	"__attribute__((constructor)) static void maps(void) {\n"                                  \
	"  char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n" \
	"  *p = 0xc3; mprotect(p, 4096, " protection "); }\n"
#define TEXT "const char *volatile text = \"WASMTIME_BACKTRACE_DETAILS=1\";\n"

static const struct made {
	const char *source, *file, *flags, *seen;
} made[] = {
	{"", "p", "", ""},
	{"int pypy_execute_source;", "p", "", "pypy"},
	{"__attribute__((section(\".svm_heap\"))) char heap[16] = {1};", "p", "-static -s",
	 "native-image"},
	{"int graal_create_isolate;", "p", "", "native-image"},
	{"int J9VMDllMain;", "p", "", "openj9"},
	{"", "libj9vm29.so", "-s", "openj9"},
	{"int g_dacTable;", "p", "", "dotnet"},
	{"int DotNetRuntimeInfo;", "p", "", "dotnet"},
	{"int coreclr_initialize;", "p", "", "dotnet"},
	{"", "libcoreclr.so", "-s", "dotnet"},
	{"void mono_jit_init(void) {}", "p", "", "mono"},
	{"void enif_make_atom(void) {}", "p", "", "beam"},
	{"long rb_cObject = 8;", "p", "", "ruby"},
	{"long rb_cObject;", "p", "", ""},
	{"const char *sapi_module[9] = {\"cli\"};", "p", "", "php"},
	{"const char *sapi_module[9];", "p", "", ""},
	{"long PL_curinterp = 8;", "p", "", "perl"},
	{"long PL_curinterp;", "p", "", ""},
	{"long R_GlobalEnv = 8;", "p", "", "r"},
	{"long R_GlobalEnv;", "p", "", ""},
	{TEXT MAPS("PROT_READ | PROT_EXEC"), "p", "-s", "wasmtime"},
	{TEXT MAPS("PROT_READ | PROT_WRITE | PROT_EXEC"), "p", "-s", ""},
	{TEXT, "p", "", ""},
	{MAPS("PROT_READ | PROT_EXEC"), "p", "", ""},
	{"long rb_cObject = 8; int g_dacTable;", "p", "", "dotnet,ruby"},
};

static void signs_decide(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		const struct made *m = &made[i];
		_cleanup_free_ char *build =
			xasprintf("cd %s && cat >p.c <<'END'\n#include <sys/mman.h>\n#include "
				  "<unistd.h>\n%s\n"
				  "int main(void) { write(1, \"x\", 1); for (;;) pause(); }\nEND\n"
				  "gcc -w %s p.c -o %s",
				  dir, m->source, m->flags, m->file);
		_cleanup_free_ char *command = xasprintf("./%s", m->file), *seen = NULL;
		pid_t pid;

		assert_int_equal(system(build), 0);
		pid = start(command);
		seen = seen_in(pid);
		stop(pid);
		if (!streq(seen, m->seen))
			fail_msg("%s %s: %s", m->file, m->source, seen);
	}
}

/* Only the row of .NET has a text that says what works. No other code has a text about .NET. */
static void dotnet_is_told_once(void **state)
{
	static const char build[] =
		"cat >p.c <<'END'\n#include <unistd.h>\nint g_dacTable, coreclr_initialize;\n"
		"int main(void) { write(1, \"x\", 1); for (;;) pause(); }\nEND\ngcc p.c -o p -w";
	_cleanup_free_ char *command = xasprintf("cd %s && %s", dir, build);
	struct live_process l = {0};
	bool again = false;
	pid_t pid;

	(void)state;
	assert_int_equal(system(command), 0);
	pid = start("./p");
	live_open(&l, pid);
	assert_int_equal(runtime_learn(NULL, l.maps, l.indexes, NULL, &l.runtimes, &again), 0);
	assert_int_equal(runtime_process_n(l.runtimes), 0);
	assert_int_equal(runtime_process_n_recognised(l.runtimes), 1);
	assert_non_null(
		strstr(runtime_process_recognised(l.runtimes, 0)->text, "DOTNET_PerfMapEnabled=1"));
	stop(pid);
	live_forget(&l);
}

/*
 * The program contains Perl, but has not started it. The program may start Perl in a moment, or
 * never.
 */
static void what_is_young_is_looked_at_again(void **state)
{
	static const char build[] =
		"cat >p.c <<'END'\n#include <unistd.h>\nlong PL_curinterp;\n"
		"int main(void) { write(1, \"x\", 1); for (;;) pause(); }\nEND\ngcc p.c -o p -w";
	_cleanup_free_ char *command = xasprintf("cd %s && %s", dir, build);
	struct live_process l = {0};
	bool again = false;
	pid_t pid;

	(void)state;
	assert_int_equal(system(command), 0);
	pid = start("./p");
	live_open(&l, pid);
	assert_int_equal(runtime_learn(NULL, l.maps, l.indexes, NULL, &l.runtimes, &again), 0);
	assert_null(l.runtimes);
	assert_true(again);
	stop(pid);
	live_forget(&l);
}

/* ---- real runtimes ---- */

static const struct real {
	const char *program, *command, *seen;
} real[] = {
	{"perl", "perl -e '$| = 1; print \"x\"; sleep 1 while 1'", "perl"},
	{"ruby", "ruby -e '$stdout.sync = true; print \"x\"; sleep'", "ruby"},
	{"php", "php -n -r 'echo \"x\"; while (1) sleep(1);'", "php"},
	{"pypy3", "pypy3 -c 'import time; print(\"x\", flush=True); time.sleep(1000)'", "pypy"},
	{"Rscript", "Rscript -e 'cat(\"x\"); Sys.sleep(1000)'", "r"},
	{"erl", "erl -noshell -eval 'io:put_chars(\"x\"), timer:sleep(1000000).'", "beam"},
};

static bool is_installed(const char *program)
{
	_cleanup_free_ char *command = xasprintf("command -v %s >/dev/null", program);

	return system(command) == 0;
}

static void real_ones(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(real); i++) {
		_cleanup_free_ char *seen = NULL;
		pid_t pid;

		if (!is_installed(real[i].program)) {
			print_message("skipped: no %s here (make deps long)\n", real[i].program);
			continue;
		}
		pid = start(real[i].command);
		seen = seen_in(pid);
		stop(pid);
		if (!streq(seen, real[i].seen))
			fail_msg("%s: %s", real[i].program, seen);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signs_decide),
		cmocka_unit_test(dotnet_is_told_once),
		cmocka_unit_test(what_is_young_is_looked_at_again),
		cmocka_unit_test(real_ones),
	};

	return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
