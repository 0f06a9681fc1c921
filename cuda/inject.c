// SPDX-License-Identifier: Apache-2.0
/*
 * inject: the entry of the library, its thread, and what it does at fork() and exit().
 *
 * The driver loads the library at cuInit(), if CUDA_INJECTION64_PATH names it, and calls
 * InitializeInjection(). The library stays until the process ends (it is linked with -z nodelete).
 * It has one thread, "podflame-cuda", the watcher, which looks at the semaphores twice a second.
 * The watcher makes all calls of CUPTI, except those in callbacks and the removal (launch.h).
 */
#include "clock.h"
#include "glibc.h"
#include "process.h"
#include "session.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PERIOD_NS      (500 * NSEC_PER_MSEC)
#define TIMER_SLACK_NS (50 * NSEC_PER_MSEC) /* the kernel may delay a wake-up by this time */
#define STACK_BYTES    (512 * 1024)	    /* stack of the watcher, which CUPTI uses, too */
#define EXIT_WAIT_NS   (200 * NSEC_PER_MSEC)

bool process_forked;
pthread_t process_watcher;

/*
 * The state of the last flush: the thread that calls exit() asks for it, and the watcher does it.
 */
enum { EXIT_NONE, EXIT_ASKED, EXIT_BEGUN, EXIT_DONE };
static uint32_t exit_state;
static pid_t process_id;

__attribute__((visibility("default"))) int InitializeInjection(void);

static uint32_t get_exit_state(void)
{
	return __atomic_load_n(&exit_state, __ATOMIC_ACQUIRE);
}

static bool move_exit_state(uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&exit_state, &from, to, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

static void wake(void)
{
	syscall(SYS_futex, &exit_state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/*
 * Waits for `ns`, less than a second, or until exit_state is not `while_state` any more. Profiles
 * show the name: by it the page leaves out this idle wait.
 */
static void podflame_cuda_nap(uint32_t while_state, uint64_t ns)
{
	struct timespec t = {.tv_nsec = (long)ns};

	syscall(SYS_futex, &exit_state, FUTEX_WAIT_PRIVATE, while_state, &t, NULL, 0);
}

/*
 * Asks the watcher for the last flush, and waits for it. The wait is short, because CUPTI may be
 * blocked. In a child of fork() or clone() the function does nothing: it has no watcher and no
 * CUDA.
 */
static void at_exit(void)
{
	uint64_t now = now_ns(), deadline_ns = now + EXIT_WAIT_NS;
	uint32_t current;

	if (getpid() != process_id || !move_exit_state(EXIT_NONE, EXIT_ASKED))
		return;
	wake();
	for (; now < deadline_ns; now = now_ns()) {
		current = get_exit_state();
		if (current == EXIT_DONE)
			return;
		podflame_cuda_nap(current, deadline_ns - now);
	}
	/* a flush that has not begun stays undone */
	__atomic_store_n(&exit_state, EXIT_DONE, __ATOMIC_RELEASE);
}

/*
 * Registers at_exit() again in each session. CUPTI has registered its own handlers before, so
 * at_exit() runs before them.
 */
static void expect_exit(void)
{
	static uint32_t n_registered;

	if (session_number() != n_registered && atexit(at_exit) == 0)
		n_registered = session_number();
}

static void *watch(void *arg)
{
	__atomic_store_n(&process_watcher, pthread_self(), __ATOMIC_RELAXED);
	prctl(PR_SET_NAME, "podflame-cuda");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	while (get_exit_state() == EXIT_NONE) {
		session_step(now_ns());
		expect_exit();
		podflame_cuda_nap(EXIT_NONE, PERIOD_NS);
	}
	if (move_exit_state(EXIT_ASKED, EXIT_BEGUN)) {
		session_at_exit();
		__atomic_store_n(&exit_state, EXIT_DONE, __ATOMIC_RELEASE);
		wake();
	}
	/* if the thread ended, CUPTI's destructors would run beside CUPTI's exit handlers */
	for (;;)
		pause();
	return arg;
}

/*
 * Blocks the signals of the process in this thread. It does not block the signals that a fault or a
 * system call of this thread causes: the program's handlers report a crash in CUPTI like other
 * crashes, and answer a system call that a seccomp filter traps. If a signal of a fault is blocked,
 * the kernel kills the process.
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
	sigdelset(&set, SIGSYS);
	pthread_sigmask(SIG_SETMASK, &set, ret_old);
}

/*
 * Starts the watcher with a stack of this size; 0: the default size. Returns 0 or a positive errno.
 */
static int create_thread(size_t stack_bytes)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack_bytes > 0)
		pthread_attr_setstacksize(&attr, stack_bytes);
	err = pthread_create(&thread, &attr, watch, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

static void start_watcher(void)
{
	sigset_t old;

	block_signals(&old);
	if (create_thread(STACK_BYTES) == EINVAL) /* thread-local data is too large for it */
		create_thread(0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void in_child(void)
{
	__atomic_store_n(&process_forked, true, __ATOMIC_RELAXED);
}

/*
 * Starts the watcher at the first call. Returns 1 (success) even if the library cannot work,
 * because the program runs as well without a profiler.
 */
int InitializeInjection(void)
{
	static bool is_begun;

	if (__atomic_exchange_n(&is_begun, true, __ATOMIC_ACQ_REL))
		return 1;
	process_id = getpid();
	if (pthread_atfork(NULL, NULL, in_child) == 0)
		start_watcher();
	return 1;
}
