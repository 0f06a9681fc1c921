// SPDX-License-Identifier: Apache-2.0
/*
 * The clocks of a process's threads: they show CPU time between two ticks of the process's own
 * clock.
 */
#include "node/limit/thread_clocks.h"
#include "lib/base/testprogram.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void *spin(void *arg)
{
	for (;;)
		;
	return arg;
}

/* ---- programs ---- */

static void two_run_one_sleeps(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, spin, NULL);
	pthread_create(&thread, NULL, spin, NULL);
	for (;;)
		pause();
}

static void *works(void *arg)
{
	while (thread_cpu_ns() < NSEC_PER_MSEC)
		;
	return arg;
}

static void a_thread_a_unit_of_work(void)
{
	pthread_t thread;

	for (;;)
		if (pthread_create(&thread, NULL, works, NULL) == 0)
			pthread_join(thread, NULL);
}

static void *works_and_starts_the_next(void *arg)
{
	pthread_t thread;

	works(NULL);
	while (pthread_create(&thread, NULL, works_and_starts_the_next, NULL))
		;
	pthread_detach(thread);
	return arg;
}

static void each_starts_the_next(void)
{
	works_and_starts_the_next(NULL);
	for (;;)
		pause();
}

static pid_t start(void (*program)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	program();
	_exit(1);
}

/* ---- tests ---- */

/* Stops the process. Returns its CPU time, because its own clock is exact while it is stopped. */
static uint64_t stopped_ns(pid_t pid)
{
	siginfo_t info;

	kill(pid, SIGSTOP);
	assert_int_equal(waitid(P_PID, pid, &info, WSTOPPED), 0);
	return program_cpu_ns(pid);
}

/* Returns the time that a hypervisor took from the CPUs of this machine for other machines. */
static uint64_t stolen_ns(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long ticks = 0;

	assert_int_equal(file_read(AT_FDCWD, "/proc/stat", 1 << 20, &text, NULL), 0);
	(void)!sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks);
	return ticks * NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);
}

/*
 * Whether the clocks of the threads and of the process show about the same amount of work. Two
 * things limit how well they can agree: only one of them includes stolen time, and a thread that
 * exits while its process is being stopped continues to run.
 */
static bool agree_once(pid_t pid, uint64_t work_ns)
{
	struct limit_clocks c = {0};
	uint64_t before, told, first, sum, stolen;

	before = stopped_ns(pid);
	stolen = stolen_ns();
	assert_int_equal(limit_clocks_open((uint32_t)pid, &c), 0);
	first = limit_clocks_ns(&c);
	kill(pid, SIGCONT);
	while (limit_clocks_ns(&c) < work_ns && program_cpu_ns(pid) < before + 100 * work_ns)
		;
	told = stopped_ns(pid) - before;
	sum = limit_clocks_ns(&c);
	stolen = stolen_ns() - stolen;
	limit_clocks_close(&c);
	kill(pid, SIGCONT);
	if (first == 0 && sum > told / 2 && sum < told * 2 + stolen)
		return true;
	print_message("its threads: %llu ns before it ran, %llu after; the process: %llu ns\n",
		      (unsigned long long)first, (unsigned long long)sum, (unsigned long long)told);
	return false;
}

static void agrees_with_a_stopped_process(void (*program)(void))
{
	pid_t pid = start(program);
	uint64_t work_ns = 10 * NSEC_PER_MSEC;

	while (program_cpu_ns(pid) < 20 * NSEC_PER_MSEC)
		usleep(1000);
	/* the longer the program runs, the less important are the errors of the clocks */
	for (; !agree_once(pid, work_ns); work_ns *= 2)
		assert_true(work_ns < 5 * NSEC_PER_SEC);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void it_agrees_with_a_stopped_process(void **state)
{
	(void)state;
	agrees_with_a_stopped_process(two_run_one_sleeps);
}

static void it_has_threads_that_start_later(void **state)
{
	(void)state;
	agrees_with_a_stopped_process(a_thread_a_unit_of_work);
	agrees_with_a_stopped_process(each_starts_the_next);
}

static void who_is_gone_has_none(void **state)
{
	struct limit_clocks c = {0};

	(void)state;
	assert_int_equal(limit_clocks_open(INT32_MAX, &c), -ENOENT);
	assert_int_equal(c.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_agrees_with_a_stopped_process),
		cmocka_unit_test(it_has_threads_that_start_later),
		cmocka_unit_test(who_is_gone_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
