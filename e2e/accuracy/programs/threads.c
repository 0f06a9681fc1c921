/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads: burns in threads of pthread, in one of bare clone() with a stack of its own, and in the
 * main thread.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "burn.h"

static struct share shares[] = {{"in_main", 0}, {"in_pthread", 0}, {"in_clone", 0}};

#define WORKER(name)                                                                               \
	static ALONE void name(uint64_t n)                                                         \
	{                                                                                          \
		SPIN(n);                                                                           \
	}
WORKER(in_main)
WORKER(in_pthread)
WORKER(in_clone)

static void *pthread_body(void *arg)
{
	for (uint64_t at = THREAD_NS(); THREAD_NS() - at < burn_budget_ns * 3 / 10;)
		BURN(shares[1], in_pthread(3000000));
	return arg;
}

static int clone_body(void *arg)
{
	for (uint64_t at = THREAD_NS(); THREAD_NS() - at < burn_budget_ns * 3 / 10;)
		BURN(shares[2], in_clone(3000000));
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	return 0;
}

int main(int argc, char **argv)
{
	char *stack = (char *)mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	static int done;
	pthread_t t;

	(void)argc;
	burn_begin(argv);
	pthread_create(&t, NULL, pthread_body, NULL);
	clone(clone_body, stack + 65536,
	      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
	      &done);
	for (uint64_t at = THREAD_NS(); THREAD_NS() - at < burn_budget_ns * 4 / 10;)
		BURN(shares[0], in_main(burn_steps()));
	pthread_join(t, NULL);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		usleep(10000);
	return burn_end(shares, 3);
}
