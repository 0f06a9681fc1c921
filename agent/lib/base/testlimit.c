// SPDX-License-Identifier: Apache-2.0
/*
 * testlimit: no test waits for ever. The Makefile links this file into every test program and lets
 * it wrap two functions of cmocka. If a test, its setup and its teardown together take longer than
 * the limit, the program prints the test's name, the functions in which the test is, and the
 * program's children. Then it kills the children and ends. The limit is LIMIT_S seconds,
 * LIMIT_LONG_S if LONG is set, or what TEST_LIMIT_S says. So a wait in a test may be a plain loop.
 * until() of testwait.h fails earlier, and can print what the test waits for.
 *
 * A program can give cmocka_set_test_filter() a pattern of the names of the tests to run. It fails
 * if the pattern matches no test. Otherwise nobody would notice that a renamed test does not run.
 */
#include "lib/base/testprogram.h"

#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_S	     300
#define LIMIT_LONG_S 5000

int __real__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown);
void __wrap_cmocka_set_test_filter(const char *pattern);

static const char *pattern;	       /* pattern of the names of the tests that run */
static const struct CMUnitTest **kept; /* the tests that run, in their order */
static size_t next;
static const char *volatile current = "the group's setup";
static unsigned limit_s;
static timer_t timer;
static char program[4096];

/* ---- a test takes too long ---- */

/*
 * Prints the functions of this program that the interrupted thread is executing. addr2line needs
 * offsets in the file, because the program is position-independent.
 */
static void print_where(void)
{
	char text[64][24], *argv[64] = {"addr2line", "-Cfpie", program};
	void *at[60];
	int n = backtrace(at, ARRAY_SIZE(at)), argc = 3;
	Dl_info here, own;
	pid_t pid;

	dladdr((void *)(uintptr_t)print_where, &own);
	for (int i = 2; i < n && argc < 63; i++) { /* skips this function and the signal handler */
		if (!dladdr(at[i], &here) || here.dli_fbase != own.dli_fbase)
			continue;
		snprintf(text[argc], sizeof(text[argc]), "%#lx",
			 (uintptr_t)at[i] - (uintptr_t)own.dli_fbase - 1);
		argv[argc] = text[argc];
		argc++;
	}
	dprintf(2, "[   LINE   ] --- it stands in:\n");
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0)
		waitpid(pid, NULL, 0);
	else
		backtrace_symbols_fd(at, n, 2);
}

static void end_child(pid_t pid)
{
	char path[64], text[256] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
		dprintf(2, "[   LINE   ] --- its child %.*s\n", (int)(strcspn(text, ")") + 3),
			text); /* text: pid (comm) state */
	close(fd);
	kill_family(pid);
}

static void end_children_of(const char *task)
{
	char path[300], text[4096] = "", *at = text, *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%s/children", task);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!read(fd, text, sizeof(text) - 1);
	close(fd);
	for (pid_t pid; (pid = (pid_t)strtol(at, &end, 10)) > 0; at = end)
		end_child(pid);
}

static void on_limit(int signal)
{
	DIR *dir;

	(void)signal;
	/* the calls below are unsafe in a signal handler; if they hang, SIGALRM ends the program */
	alarm(30);
	dprintf(2, "[  ERROR   ] --- %s: no end after %u s\n", current, limit_s);
	print_where();
	dir = opendir("/proc/self/task");
	for (const struct dirent *e; dir && (e = readdir(dir));)
		if (e->d_name[0] != '.')
			end_children_of(e->d_name);
	dprintf(2, "[  FAILED  ] %s\n", current);
	_exit(1);
}

/* ---- around each test ---- */

static void begin(const char *name)
{
	const struct itimerspec limit = {.it_value.tv_sec = limit_s};

	current = name;
	timer_settime(timer, 0, &limit, NULL);
}

static int begin_test(void **state)
{
	const struct CMUnitTest *t = kept[next++];

	begin(t->name);
	return t->setup_func ? t->setup_func(state) : 0;
}

static int end_test(void **state)
{
	const struct CMUnitTest *t = kept[next - 1];
	int r = t->teardown_func ? t->teardown_func(state) : 0;

	begin("what comes after the last test");
	return r;
}

static void limit_set_up(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMAX - 1};
	const char *told = getenv("TEST_LIMIT_S");
	uint64_t seconds = getenv("LONG") ? LIMIT_LONG_S : LIMIT_S;
	void *at[1];

	if (told && str_to_u64(told, UINT32_MAX, &seconds))
		abort();
	limit_s = (unsigned)seconds;
	event._sigev_un._tid = gettid();
	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0 ||
	    timer_create(CLOCK_MONOTONIC, &event, &timer))
		abort();
	backtrace(at, 1); /* the first backtrace() loads a library, which the handler must not do */
	signal(SIGRTMAX - 1, on_limit);
}

void __wrap_cmocka_set_test_filter(const char *p)
{
	pattern = p;
}

int __wrap__cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n,
				   CMFixtureFunction setup, CMFixtureFunction teardown)
{
	struct CMUnitTest *run = xcalloc(n, sizeof(*run));
	size_t n_run = 0;
	int r;

	if (!limit_s)
		limit_set_up();
	free(kept);
	kept = xcalloc(n, sizeof(*kept));
	next = 0;
	for (size_t i = 0; i < n; i++) {
		if (!tests[i].test_func || (pattern && fnmatch(pattern, tests[i].name, 0)))
			continue;
		kept[n_run] = &tests[i];
		run[n_run] = tests[i];
		run[n_run].setup_func = begin_test;
		run[n_run++].teardown_func = end_test;
	}
	if (pattern && !n_run) {
		print_error("[  FAILED  ] no test's name matches the pattern %s\n", pattern);
		free(run);
		return 1;
	}
	begin("the group's setup");
	r = __real__cmocka_run_group_tests(name, run, n_run, setup, teardown);
	timer_settime(timer, 0, &(struct itimerspec){}, NULL);
	free(run);
	return r;
}
