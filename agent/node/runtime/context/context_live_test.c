// SPDX-License-Identifier: Apache-2.0
/*
 * Tests programs that publish trace contexts, in the layouts of real compilers and libcs. The test
 * has every way to access a thread-local variable, and every version of Go on this machine. It
 * reads the contexts as the kernel's part does.
 */
#include "node/runtime/context/testcontext.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "node/runtime/testlive.h"

static char dir[] = "/tmp/podflame-context-XXXXXX";

/* ---- processes ---- */

/*
 * Runs a command, whose words are separated by blanks. If ret_out is not NULL, *ret_out is a pipe
 * with its output and errors.
 */
static pid_t start(const char *line, int *ret_out)
{
	_cleanup_free_ char *copy = xstrdup(line);
	char *argv[64], *save = NULL;
	int fds[2] = {-1, -1};
	size_t n = 0;
	pid_t pid;

	for (char *s = strtok_r(copy, " ", &save); s && n < 63; s = strtok_r(NULL, " ", &save))
		argv[n++] = s;
	argv[n] = NULL;
	if (ret_out)
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* so that a failed test leaves no process */
		if (ret_out)
			dup2(fds[1], 1);
		if (chdir(dir))
			_exit(126);
		execvp(argv[0], argv);
		_exit(127);
	}
	assert_true(pid > 0);
	if (ret_out) {
		close(fds[1]);
		*ret_out = fds[0];
	}
	return pid;
}

static bool run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool run(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int status;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	assert_int_equal(waitpid(start(line, NULL), &status, 0) > 0, 1);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Returns the thread pointer of a thread, which never changes. */
static uint64_t thread_pointer(pid_t tid)
{
	struct user_regs_struct regs;

	assert_int_equal(ptrace(PTRACE_SEIZE, tid, NULL, NULL), 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, tid, NULL, NULL), 0);
	assert_true(waitpid(tid, NULL, __WALL) == tid);
	assert_int_equal(ptrace(PTRACE_GETREGS, tid, NULL, &regs), 0);
	assert_int_equal(ptrace(PTRACE_DETACH, tid, NULL, NULL), 0);
	return regs.fs_base;
}

/* ---- OpenTelemetry's thread context ---- */

/* A thread publishes ids that contain its number. The third thread publishes none. */
static const char library[] =
	"struct record { unsigned char trace[16], span[8], valid, flags; unsigned short n; };\n"
	"#ifdef BIG\n"
	"__thread char big[100000];\n"
	"char *use_big(void) { return big; }\n"
	"#endif\n"
	"#ifndef HIDE\n"
	"#define HIDE\n"
	"#endif\n"
	"__thread int other = 1;\n"
	"HIDE __thread struct record *otel_thread_ctx_v1;\n"
	"void publish(struct record *r) { other++; otel_thread_ctx_v1 = r; }\n";
static const char program[] =
	"#define _GNU_SOURCE\n"
	"#include <dlfcn.h>\n"
	"#include <pthread.h>\n"
	"#include <stdio.h>\n"
	"#include <sys/syscall.h>\n"
	"#include <unistd.h>\n"
	"struct record { unsigned char trace[16], span[8], valid, flags; unsigned short n; };\n"
	"extern void publish(struct record *);\n"
	"static void (*call)(struct record *);\n"
	"static int tids[3];\n"
	"static pthread_barrier_t all;\n"
	"__thread char own[24] = \"own\";\n"
	"static void *thread(void *arg) {\n"
	"	long n = (long)arg;\n"
	"	struct record r = {.trace = {0xa0 + n, [15] = 1}, .span = {0xb0 + n}, .valid = "
	"1};\n"
	"	own[0]++;\n"
	"	if (n < 2) call(&r);\n"
	"	tids[n] = syscall(SYS_gettid);\n"
	"	pthread_barrier_wait(&all);\n"
	"	for (;;) pause();\n"
	"}\n"
	"int main(int argc, char **argv) {\n"
	"	pthread_t t;\n"
	"#ifdef OPEN\n"
	"	void *h = dlopen(argv[1], RTLD_NOW);\n"
	"	if (!h) { fprintf(stderr, \"%s\\n\", dlerror()); return 1; }\n"
	"	call = dlsym(h, \"publish\");\n"
	"#else\n"
	"	call = publish;\n"
	"#endif\n"
	"	pthread_barrier_init(&all, 0, 4);\n"
	"	for (long n = 0; n < 3; n++) pthread_create(&t, 0, thread, (void *)n);\n"
	"	pthread_barrier_wait(&all);\n"
	"	printf(\"%d %d %d\\n\", tids[0], tids[1], tids[2]);\n"
	"	fflush(stdout);\n"
	"	for (;;) pause();\n"
	"}\n";

static void write_file(const char *name, const char *text)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644), 0);
}

static void read_tids(int fd, int *ret, size_t n)
{
	char line[128] = "", *s = line;
	size_t len = 0;

	while (!strchr(line, '\n') && len < sizeof(line) - 1) {
		ssize_t r = read(fd, line + len, sizeof(line) - 1 - len);

		if (r <= 0)
			fail_msg("the program said \"%s\"", line);
		len += (size_t)r;
	}
	for (size_t i = 0; i < n; i++)
		ret[i] = (int)strtol(s, &s, 10);
	close(fd);
}

/*
 * Checks the contexts of the program's threads. Returns whether the variable was found through the
 * thread's vector of modules (the DTV).
 */
static bool check_program(const char *line)
{
	const struct runtime_learnt *d;
	struct live_process l = {0};
	int out, tids[3];
	pid_t pid = start(line, &out);
	bool dynamic;

	read_tids(out, tids, 3);
	live_learn(&l, pid);
	d = live_find(&l, PF_RUNTIME_OTEL);
	assert_int_equal(d->data_bytes, sizeof(struct pf_otel));
	assert_string_equal(d->problem, "");
	for (int n = 0; n < 3; n++) {
		const uint8_t *trace = (const uint8_t *)host.context.trace;
		int r = host_context(pid, thread_pointer(tids[n]), PF_RUNTIME_OTEL, d->data,
				     d->data_bytes);

		assert_int_equal(r, n < 2 ? PF_CALL_FOUND : PF_CALL_NONE);
		if (n == 2)
			continue;
		assert_int_equal(trace[0], 0xa0 + n);
		assert_int_equal(trace[15], 1);
		assert_int_equal(host.context.span[0], 0xb0 + n);
	}
	dynamic = ((const struct pf_otel *)d->data)->module != 0;
	stop(pid);
	live_forget(&l);
	return dynamic;
}

/*
 * Compiles the case and checks it. dynamic: whether the variable must be found through the thread's
 * vector of modules.
 */
static void check_case(const char *cc, const char *library_flags, const char *program_flags,
		       bool dynamic)
{
	bool opens = strstr(program_flags, "OPEN");

	print_message("%s, library: %s, program: %s\n", cc, library_flags, program_flags);
	assert_true(run("%s -O1 -shared -fPIC %s -o libctx.so library.c", cc, library_flags));
	assert_true(run("%s -O1 -pthread %s -o program program.c%s", cc, program_flags,
			opens ? " -ldl" : " -L. -lctx -Wl,-rpath,$ORIGIN"));
	assert_int_equal(check_program(opens ? "./program ./libctx.so" : "./program"), dynamic);
}

static void inside_the_program(void **state)
{
	static const char *const flags[] = {"-fPIE -pie -rdynamic", "-fno-pie -no-pie -rdynamic",
					    "-static", "-static-pie"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		print_message("%s\n", flags[i]);
		assert_true(run("gcc -O1 -pthread %s -o program program.c library.c", flags[i]));
		assert_false(check_program("./program"));
	}
}

static void in_a_library_from_the_start(void **state)
{
	(void)state;
	check_case("gcc", "-mtls-dialect=gnu2", "", false);
	check_case("gcc", "-mtls-dialect=gnu", "", true);
	check_case("gcc", "-ftls-model=initial-exec", "", false);
	check_case("gcc", "-mtls-dialect=gnu2 -Wl,-Bsymbolic", "", false);
	check_case("gcc", "-mtls-dialect=gnu -DHIDE=__attribute__((visibility(\"protected\")))", "",
		   true);
}

static void in_a_library_opened_later(void **state)
{
	(void)state;
	check_case("gcc", "-mtls-dialect=gnu2 -DBIG", "-DOPEN", true);
	check_case("gcc", "-mtls-dialect=gnu -DBIG", "-DOPEN", true);
	check_case("gcc", "-mtls-dialect=gnu2 -DBIG -Wl,-Bsymbolic", "-DOPEN", true);
}

static void with_musl(void **state)
{
	(void)state;
	if (!run("musl-gcc --version")) {
		print_message("no musl-gcc (.ci/deps long)\n");
		skip();
	}
	check_case("musl-gcc", "-mtls-dialect=gnu2", "", false);
	check_case("musl-gcc", "", "", true);
	check_case("musl-gcc", "-mtls-dialect=gnu2", "-DOPEN", true);
	check_case("musl-gcc", "", "-DOPEN", true);
}

/* ---- Go ---- */

static const char go_program[] =
	"package main\n"
	"import (\n"
	"	\"context\"\n"
	"	\"fmt\"\n"
	"	\"runtime\"\n"
	"	\"runtime/pprof\"\n"
	"	\"syscall\"\n"
	")\n"
	"func spin() { for { } }\n"
	"func main() {\n"
	"	tids := make(chan int)\n"
	"	runtime.GOMAXPROCS(4)\n"
	"	go pprof.Do(context.Background(), pprof.Labels(\"trace_id\", \""
	"a1b2c3d4e5f60718293a4b5c6d7e8f90"
	"\", \"other\", \"x\", \"span_id\", \""
	"0011223344556677"
	"\"), func(context.Context) {\n"
	"		runtime.LockOSThread()\n"
	"		tids <- syscall.Gettid()\n"
	"		spin()\n"
	"	})\n"
	"	a := <-tids\n"
	"	go func() {\n"
	"		runtime.LockOSThread()\n"
	"		tids <- syscall.Gettid()\n"
	"		spin()\n"
	"	}()\n"
	"	fmt.Println(a, <-tids)\n"
	"	spin()\n"
	"}\n";

static void check_go(const char *line)
{
	const struct runtime_learnt *d;
	struct live_process l = {0};
	int out, tids[2], r = PF_CALL_NONE;
	pid_t pid = start(line, &out);

	read_tids(out, tids, 2);
	live_learn(&l, pid);
	d = live_find(&l, PF_RUNTIME_GOLABELS);
	assert_string_equal(d->problem, "");
	assert_true(str_has_prefix(d->version, "go1."));
	print_message("%s\n", d->version);
	assert_int_equal(d->data_bytes, sizeof(struct pf_golabels));
	/* While the goroutine is being preempted, the thread has no context. */
	for (unsigned i = 0; i < 500 && r != PF_CALL_FOUND; i++) {
		usleep(10000 * (i > 0));
		r = host_context(pid, thread_pointer(tids[0]), PF_RUNTIME_GOLABELS, d->data,
				 d->data_bytes);
	}
	assert_int_equal(r, PF_CALL_FOUND);
	assert_memory_equal(host.context.trace, "a1b2c3d4e5f60718293a4b5c6d7e8f90", 32);
	assert_memory_equal(host.context.span, "0011223344556677", 16);
	r = host_context(pid, thread_pointer(tids[1]), PF_RUNTIME_GOLABELS, d->data, d->data_bytes);
	assert_int_equal(r, PF_CALL_NONE);
	stop(pid);
	live_forget(&l);
}

static bool have_go(void)
{
	if (run("go version"))
		return true;
	print_message("no go\n");
	return false;
}

static void go_in_every_form(void **state)
{
	static const char *const flags[] = {"", "-buildmode=pie", "-ldflags=-linkmode=external"};

	(void)state;
	if (!have_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		print_message("%s\n", flags[i]);
		assert_true(run("go build %s -o program-go program.go", flags[i]));
		if (i == 0) {
			check_go("./program-go");
			assert_true(run("strip program-go"));
		}
		check_go("./program-go");
	}
}

static void every_version_of_go(void **state)
{
	static const char *const versions[] = {"1.18.10", "1.19.13", "1.20.14", "1.21.13", "1.22.0",
					       "1.23.0",  "1.24.0",  "1.25.0",	"1.27.0"};

	(void)state;
	if (!getenv("LONG")) {
		print_message("LONG is not set: takes minutes\n");
		skip();
	}
	if (!have_go())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		assert_true(
			run("env GOTOOLCHAIN=go%s go build -o program-go program.go", versions[i]));
		check_go("./program-go");
	}
}

/* ---- all tests ---- */

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	write_file("library.c", library);
	write_file("program.c", program);
	write_file("program.go", go_program);
	write_file("go.mod", "module program\n\ngo 1.18\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return run("rm -r %s", dir) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inside_the_program),
		cmocka_unit_test(in_a_library_from_the_start),
		cmocka_unit_test(in_a_library_opened_later),
		cmocka_unit_test(with_musl),
		cmocka_unit_test(go_in_every_form),
		cmocka_unit_test(every_version_of_go),
	};

	return cmocka_run_group_tests_name("context, live", tests, set_up, tear_down);
}
