/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests only: what the three probes report. A breakpoint at the nop of each probe stops the
 * thread, as a uprobe of the kernel does. The handler of SIGTRAP keeps the arguments, which it
 * takes from the registers that the notes name. So no function of the library is replaced.
 */
#pragma once

#include "podflame_cuda.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

struct seen_launch {
	uint32_t correlation, level, kind, context;
	char function[64], kernel[64];	/* "": the argument was NULL */
	pid_t thread;
};

/* Only the thread that holds the lock may use it. */
static struct {
	bool lock;
	void (*hook)(void);		/* called at each hit, with the lock; may be NULL */
	const uint8_t *at[3];		/* the addresses of launch, work, status */
	size_t n_launches, n_work, n_status, n_batches;
	struct seen_launch launches[1 << 17];
	struct podflame_cuda_work work[1 << 19];
	struct podflame_cuda_status status; /* the last status that was reported */
} seen;

static inline void seen_lock(void)
{
	while (__atomic_exchange_n(&seen.lock, true, __ATOMIC_ACQUIRE))
		;
}

static inline void seen_unlock(void)
{
	__atomic_store_n(&seen.lock, false, __ATOMIC_RELEASE);
}

static inline void seen_copy(char to[64], uint64_t from)
{
	if (from)
		strncpy(to, (const char *)(uintptr_t)from, 63);
}

static inline void seen_add_launch(const greg_t *r)
{
	struct seen_launch *l = &seen.launches[seen.n_launches];

	if (seen.n_launches == sizeof(seen.launches) / sizeof(seen.launches[0]))
		abort();
	l->correlation = (uint32_t)r[REG_RDI];
	l->level = (uint32_t)r[REG_RSI];
	l->kind = (uint32_t)r[REG_RDX];
	seen_copy(l->function, (uint64_t)r[REG_RCX]);
	seen_copy(l->kernel, (uint64_t)r[REG_R8]);
	l->context = (uint32_t)r[REG_R9];
	l->thread = gettid();
	seen.n_launches++;
}

static inline void seen_add_work(const greg_t *r)
{
	size_t n = (uint32_t)r[REG_RSI];

	if (n == 0 || n > PODFLAME_CUDA_WORK_MAX ||
	    (uint32_t)r[REG_RDX] != sizeof(seen.work[0]) ||
	    seen.n_work + n > sizeof(seen.work) / sizeof(seen.work[0]))
		abort();
	memcpy(&seen.work[seen.n_work], (const void *)r[REG_RDI], n * sizeof(seen.work[0]));
	seen.n_work += n;
	seen.n_batches++;
}

static inline void seen_add_status(const greg_t *r)
{
	if ((uint32_t)r[REG_RSI] != sizeof(seen.status))
		abort();
	memcpy(&seen.status, (const void *)r[REG_RDI], sizeof(seen.status));
	seen.n_status++;
}

static inline void seen_trap(int sig, siginfo_t *info, void *context)
{
	const greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *at = (const uint8_t *)r[REG_RIP] - 1;

	(void)sig;
	(void)info;
	seen_lock();
	if (at == seen.at[0])
		seen_add_launch(r);
	else if (at == seen.at[1])
		seen_add_work(r);
	else if (at == seen.at[2])
		seen_add_status(r);
	else
		abort();
	if (seen.hook)
		seen.hook();
	seen_unlock();
}

/* Puts breakpoints at the probes, as a debugger does. */
static inline void seen_begin(const void *launch, const void *work, const void *status)
{
	struct sigaction action = {.sa_sigaction = seen_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
	const void *at[3] = {launch, work, status};
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	uint8_t code[2];

	sigaction(SIGTRAP, &action, NULL);
	for (int i = 0; i < 3; i++) {
		seen.at[i] = at[i];
		if (pread(memory, code, 2, (off_t)at[i]) != 2 || code[0] != 0x90 ||
		    code[1] != 0xc3 || pwrite(memory, "\xcc", 1, (off_t)at[i]) != 1)
			abort();
	}
	close(memory);
}

static inline void seen_forget(void)
{
	seen_lock();
	seen.n_launches = seen.n_work = seen.n_status = seen.n_batches = 0;
	memset(seen.launches, 0, sizeof(seen.launches));
	seen_unlock();
}

/* Returns a number of `seen`, read under its lock. */
static inline size_t seen_number(const size_t *n)
{
	size_t value;

	seen_lock();
	value = *n;
	seen_unlock();
	return value;
}
