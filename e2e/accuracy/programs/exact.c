/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact, in C: waits for each cause, allocations, leaks. Its system calls are inline, so that a
 * profiler that uses frame pointers (offcputime) also has each function in the stack.
 */
#include <stdatomic.h>
#include <sys/syscall.h>

#include "exact.h"

#define FUTEX_WAIT_PRIVATE 128 /* from linux/futex.h, which musl-gcc does not have */
#define FUTEX_WAKE_PRIVATE 129

__attribute__((always_inline)) static inline long call(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static atomic_int lock;

static void takes_lock(void)
{
	lock = 1;
}

static void gives_lock(void)
{
	lock = 0;
	syscall(SYS_futex, &lock, FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* ---- waits ---- */

FUNCTION(naps)
{
	struct timespec t = {0, WAIT_MS * 1000000L};

	call(SYS_nanosleep, (long)&t, 0, 0, 0);
}

FUNCTION(waits_for_lock)
{
	while (lock)
		call(SYS_futex, (long)&lock, FUTEX_WAIT_PRIVATE, 1, 0);
}

FUNCTION(reads_pipe)
{
	char c;

	call(SYS_read, pipe_fds[0], (long)&c, 1, 0);
}

FUNCTION(reads_socket)
{
	char c;

	call(SYS_read, socket_fds[0], (long)&c, 1, 0);
}

FUNCTION(polls)
{
	call(SYS_poll, 0, 0, WAIT_MS, 0);
}

FUNCTION(syncs)
{
	call(SYS_pwrite64, disk_fd, (long)"x", 1, 0);
	call(SYS_fdatasync, disk_fd, 0, 0, 0);
}

FUNCTION(waits_for_signal)
{
	struct timespec t = {0, WAIT_MS * 1000000L};
	uint64_t set = 1u << (SIGUSR1 - 1);

	call(SYS_rt_sigtimedwait, (long)&set, 0, (long)&t, sizeof(set));
}

/* ---- memory ---- */

FUNCTION(mallocs)
{
	for (int i = 0; i < 10; i++) {
		escaped = malloc(100 * i + 1); /* 4510 bytes in all */
		free(escaped);
	}
}

FUNCTION(callocs)
{
	escaped = calloc(30, 1000);
	free(escaped);
}

FUNCTION(reallocs)
{
	escaped = malloc(1000);
	escaped = realloc(escaped, 100000);
	escaped = realloc(escaped, 500);
	free(escaped);
}

FUNCTION(aligned)
{
	void *p = NULL;

	if (posix_memalign(&p, 4096, 10000))
		fail("posix_memalign");
	escaped = p;
	free(p);
	escaped = aligned_alloc(64, 6400);
	free(escaped);
}

FUNCTION(maps) /* a block so large that glibc maps it */
{
	escaped = malloc(1000000);
	free(escaped);
}

FUNCTION(leaks)
{
	escaped = malloc(3001);
}

FUNCTION(leaks_zeroed)
{
	escaped = calloc(3, 1000);
}

FUNCTION(leaks_what_it_resizes)
{
	escaped = malloc(100);
	escaped = realloc(escaped, 7000);
}

FUNCTION(leaks_half) /* another thread frees the other half */
{
	given = malloc(2000);
	ask('f');
	escaped = malloc(2000);
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	waits("naps", "sleep", naps, 0);
	waits("waits_for_lock", "lock", waits_for_lock, 'l');
	waits("reads_pipe", "pipe", reads_pipe, 'p');
	waits("reads_socket", "socket", reads_socket, 's');
	waits("polls", "poll", polls, 0);
	waits("syncs", "disk", syncs, 0);
	waits("waits_for_signal", "other", waits_for_signal, 0);
	allocates("mallocs", mallocs, 4510, 0);
	allocates("callocs", callocs, 30000, 0);
	allocates("reallocs", reallocs, 101500, 0);
	allocates("aligned", aligned, 16400, 0);
	allocates("maps", maps, 1000000, 0);
	allocates("leaks", leaks, 3001, 3001);
	allocates("leaks_zeroed", leaks_zeroed, 3000, 3000);
	allocates("leaks_what_it_resizes", leaks_what_it_resizes, 7100, 7000);
	allocates("leaks_half", leaks_half, 4000, 2000);
	end();
}
