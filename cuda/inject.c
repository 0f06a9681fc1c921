// SPDX-License-Identifier: Apache-2.0
/*
 * inject: the entry of the library, its thread, and what it does at fork() and exit().
 *
 * The driver loads the library at cuInit(), if CUDA_INJECTION64_PATH names it, and calls
 * InitializeInjection(). The library stays until the process ends (it is linked with -z nodelete).
 * Its one thread, "podflame-cuda", looks at the semaphores twice a second, and all calls of CUPTI
 * are made by it but those of callbacks, of the removal (launch.h) and of the exit.
 */
#include "clock.h"
#include "glibc.h"
#include "process.h"
#include "session.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define PERIOD_NS      (500 * NSEC_PER_MSEC)
#define TIMER_SLACK_NS (50 * NSEC_PER_MSEC) /* the kernel may join the wake-up with others */
#define STACK_BYTES    (512 * 1024)	    /* of address space: CUPTI's calls run on it */
#define EXIT_WAIT_NS   (200 * NSEC_PER_MSEC)

bool process_forked;
pthread_t process_watcher;

/* Held by the thread that uses the session. The thread that exits keeps it. */
static bool busy;

__attribute__((visibility("default"))) int InitializeInjection(void);

static bool try_lock(void)
{
	return !__atomic_exchange_n(&busy, true, __ATOMIC_ACQUIRE);
}

static void unlock(void)
{
	__atomic_store_n(&busy, false, __ATOMIC_RELEASE);
}

static void nap(uint64_t ns)
{
	struct timespec t = {.tv_nsec = (long)ns};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* The exit of the process does not wait for a CUPTI that is stuck. */
static void at_exit(void)
{
	uint64_t deadline_ns = now_ns() + EXIT_WAIT_NS;

	if (process_is_forked())
		return;
	while (!try_lock()) {
		if (now_ns() > deadline_ns)
			return;
		nap(NSEC_PER_MSEC);
	}
	session_at_exit();
}

static void *watch(void *arg)
{
	bool has_exit = false;

	__atomic_store_n(&process_watcher, pthread_self(), __ATOMIC_RELAXED);
	prctl(PR_SET_NAME, "podflame-cuda");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	for (;; nap(PERIOD_NS)) {
		if (!try_lock())
			continue;
		session_step(now_ns());
		unlock();
		/* after CUPTI's own handlers, so that it runs before them */
		if (!has_exit && session_is_running())
			has_exit = atexit(at_exit) == 0;
	}
	return arg;
}

/*
 * The thread takes no signal of the process. Those of its own faults are not blocked, so that the
 * program's handlers report a crash in CUPTI as they report others.
 */
static void block_signals(sigset_t *ret_old)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	sigdelset(&set, SIGFPE);
	sigdelset(&set, SIGILL);
	sigdelset(&set, SIGTRAP);
	pthread_sigmask(SIG_SETMASK, &set, ret_old);
}

static void start_watcher(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t old;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	block_signals(&old);
	pthread_create(&thread, &attr, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
}

static void in_child(void)
{
	__atomic_store_n(&process_forked, true, __ATOMIC_RELAXED);
}

/* Returns 1, also if the library cannot work: a program runs as well without a profiler. */
int InitializeInjection(void)
{
	static bool is_begun;

	if (__atomic_exchange_n(&is_begun, true, __ATOMIC_ACQ_REL))
		return 1;
	if (pthread_atfork(NULL, NULL, in_child) == 0)
		start_watcher();
	return 1;
}
