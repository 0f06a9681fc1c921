// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of proc_memory(): a process that allocates known amounts of each kind of memory, a process
 * whose first thread has ended, and unusual texts.
 */
#include "node/proc/internal.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (40u << 20)
/* allowed difference: memory of the C library, and amounts that the kernel has not added up yet */
#define SLACK (4u << 20)

/*
 * the test writes a letter as a command to `in`; the process writes it to `out` when the command is
 * done
 */
static int in[2], out[2];

static void touch(int flags)
{
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < BYTES; i += 4096)
		((volatile char *)p)[i] = 1;
}

static void *serve(void *arg)
{
	char c;

	while (read(in[0], &c, 1) == 1) {
		if (c == 'p')
			touch(MAP_PRIVATE);
		else if (c == 's')
			touch(MAP_SHARED);
		else if (c == 'c')
			(void)mmap(NULL, BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
		if (write(out[1], &c, 1) != 1)
			break;
	}
	_exit(arg != NULL);
}

static pid_t start(bool in_thread)
{
	pthread_t thread;
	pid_t pid;

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (in_thread && pthread_create(&thread, NULL, serve, NULL) == 0)
		pthread_exit(NULL);
	serve(NULL);
	_exit(1);
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(in[i]);
		close(out[i]);
	}
}

static struct proc_memory after(pid_t pid, char what)
{
	struct proc_memory m = {0};
	uint64_t start;

	assert_int_equal(write(in[1], &what, 1), 1);
	assert_int_equal(read(out[0], &what, 1), 1);
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	assert_int_equal(proc_memory((struct process_id){start, pid}, &m), 0);
	return m;
}

static void grows(bool in_thread)
{
	pid_t pid = start(in_thread);
	struct proc_memory before = after(pid, '-'), shared = after(pid, 's');
	struct proc_memory private = after(pid, 'p'), code = after(pid, 'c');

	assert_true(before.n_threads >= 1 && before.n_threads <= 2);
	assert_true(shared.anon_bytes < before.anon_bytes + SLACK);
	assert_true(shared.data_bytes < before.data_bytes + SLACK);
	assert_in_range(private.anon_bytes, shared.anon_bytes + BYTES - SLACK,
			shared.anon_bytes + BYTES + SLACK);
	assert_in_range(private.data_bytes, shared.data_bytes + BYTES,
			shared.data_bytes + BYTES + SLACK);
	assert_int_equal(private.library_bytes, before.library_bytes);
	assert_int_equal(code.library_bytes, private.library_bytes + BYTES);
	stop(pid);
}

static void private_memory_alone_counts(void **state)
{
	(void)state;
	grows(false);
}

static void the_first_thread_has_ended(void **state)
{
	(void)state;
	grows(true);
}

static void not_a_process_with_memory(void **state)
{
	struct proc_memory m;
	uint64_t start;
	siginfo_t info;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_start_boottime((uint32_t)pid, &start), 0);
	assert_int_equal(proc_memory((struct process_id){start, pid}, &m), -ENODATA);
	waitpid(pid, NULL, 0);
	assert_int_equal(proc_memory((struct process_id){start, pid}, &m), -ESRCH);
	assert_int_equal(proc_start_boottime((uint32_t)getpid(), &start), 0);
	assert_int_equal(proc_memory((struct process_id){start + NSEC_PER_SEC, getpid()}, &m),
			 -ESRCH);
}

static void texts(void **state)
{
	static const char whole[] = "Name:\tRssAnon:\t9 kB\nVmData:\t  12 kB\nRssAnon:\t 7 kB\n"
				    "VmLib:\t 2 kB\nVmSwap:\t 3 kB\nThreads:\t5\n";
	struct proc_memory m = {0};

	(void)state;
	assert_int_equal(proc_memory_parse(whole, &m), 0);
	assert_int_equal(m.anon_bytes, 10 << 10);
	assert_int_equal(m.data_bytes, 12 << 10);
	assert_int_equal(m.library_bytes, 2 << 10);
	assert_int_equal(m.n_threads, 5);
	assert_int_equal(proc_memory_parse("", &m), -ENODATA);
	assert_int_equal(proc_memory_parse("Name:\tx\nThreads:\t1\n", &m), -ENODATA);
	assert_int_equal(proc_memory_parse("x\nRssAnon:\nVmData: 1 kB\nThreads: 1\n", &m),
			 -ENODATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_memory_alone_counts),
		cmocka_unit_test(the_first_thread_has_ended),
		cmocka_unit_test(not_a_process_with_memory),
		cmocka_unit_test(texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
