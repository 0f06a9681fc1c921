// SPDX-License-Identifier: Apache-2.0
/*
 * tenant K WORK AMOUNT [OTHER DIR DIR_OF_OTHER]: what runs in a container that a test made. It does
 * all work below the function tenant_K, so each of its stacks shows which tenant it is of. With
 * -DALIEN the functions are called alien_K, and have the same addresses. WORK is burn; mix (CPU,
 * sleep, memory; AMOUNT: milliseconds of CPU, 0: for ever); storm (AMOUNT processes); or hop
 * (AMOUNT as for mix; alternately in its own cgroup and, below tenant_OTHER, in the other cgroup).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#ifdef ALIEN
#define NAME(k) alien_##k
#else
#define NAME(k) tenant_##k
#endif
#define FIVE(X, t, a, b, c, d, e) X(t##a) X(t##b) X(t##c) X(t##d) X(t##e)
#define TEN(X, t)		  FIVE(X, t, 0, 1, 2, 3, 4) FIVE(X, t, 5, 6, 7, 8, 9)
#define NUMBERS(X)		  TEN(X, 0) TEN(X, 1) TEN(X, 2) TEN(X, 3)
#define AT_ONCE			  400 /* processes of a storm at the same time */

typedef void work_fn(unsigned amount);

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

KEEP void burn(unsigned ms)
{
	double until = cpu_ms() + ms;

	while (cpu_ms() < until)
		for (volatile unsigned i = 0; i < 20000; i++)
			;
}

KEEP void mix(unsigned ms)
{
	char *block[8];

	for (unsigned i = 0; i < 8; i++) {
		block[i] = malloc(70000);
		memset(block[i], 1, 70000);
	}
	burn(ms);
	usleep(2000);
	for (unsigned i = 0; i < 8; i++)
		free(block[i]);
}

KEEP void storm(unsigned n)
{
	unsigned running = 0;

	while (n || running) {
		if (n && running < AT_ONCE && fork() == 0) {
			burn(1);
			_exit(0);
		} else if (n && running < AT_ONCE) {
			n--;
			running++;
		} else {
			wait(NULL);
			running--;
		}
	}
}

#define DEFINE(k)                                                                                  \
	KEEP void NAME(k)(work_fn * work, unsigned amount)                                         \
	{                                                                                          \
		work(amount);                                                                      \
		__asm__ volatile("");                                                              \
	}
NUMBERS(DEFINE)
#define POINTER(k) NAME(k),
static void (*const tenants[])(work_fn *work, unsigned amount) = {NUMBERS(POINTER)};

static void enter(const char *dir)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		exit(4);
	close(fd);
}

int main(int argc, char **argv)
{
	size_t k = argc > 3 ? strtoul(argv[1], NULL, 10) : ~0ul;
	size_t other = argc > 6 ? strtoul(argv[4], NULL, 10) : 0;
	unsigned amount = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	double end = amount ? amount : 1e18;

	if (k >= sizeof(tenants) / sizeof(*tenants) || other >= sizeof(tenants) / sizeof(*tenants))
		return 2;
	if (!strcmp(argv[2], "storm"))
		tenants[k](storm, amount);
	for (unsigned turn = 0; strcmp(argv[2], "storm") && cpu_ms() < end; turn++) {
		if (!strcmp(argv[2], "burn"))
			tenants[k](burn, 1);
		else if (!strcmp(argv[2], "mix"))
			tenants[k](mix, 2);
		else {
			enter(argv[turn % 2 ? 6 : 5]);
			tenants[turn % 2 ? other : k](mix, 3);
		}
	}
	return 0;
}
