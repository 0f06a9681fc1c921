/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known answer in C: allocates memory of two GPUs by functions of the driver, each in a function of
 * its own. Once a second it prints "known SECONDS FUNCTION=SUM ...". SUM is the number of bytes
 * that the function has allocated since the program began, or the number of its calls that failed.
 * `holds` has 32 MiB for 20 s, then nothing for 20 s.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../../gpu/cuda_driver.h"

#define MIB	 (1u << 20)
#define PAUSE_MS 50

static void must(int error)
{
	if (error != CUDA_SUCCESS)
		abort();
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

#define FUNCTION(name) __attribute__((noinline)) static uint64_t name(void)

FUNCTION(churns)
{
	for (int i = 0; i < 4; i++) {
		CUdeviceptr p;

		must(cuMemAlloc_v2(&p, MIB));
		must(cuMemFree_v2(p));
	}
	return 4 * MIB;
}

FUNCTION(leaks)
{
	CUdeviceptr p;

	must(cuMemAlloc_v2(&p, 65536));
	return 65536;
}

/*
 * Asks for more than any device has: the call fails, so it must not be counted. Returns one call.
 */
FUNCTION(asks_too_much)
{
	CUdeviceptr p;

	if (cuMemAlloc_v2(&p, (size_t)1 << 46) == CUDA_SUCCESS)
		abort();
	return 1;
}

/*
 * Frees no memory itself. Each 64th call ends the context with all its memory, and begins another
 * context.
 */
FUNCTION(on_second_device)
{
	static CUcontext context;
	static unsigned n;
	CUdeviceptr p;

	if (n++ % 64 == 0) {
		if (context)
			must(cuCtxDestroy_v2(context));
		must(cuCtxCreate_v2(&context, 0, 1));
	}
	must(cuMemAlloc_v2(&p, MIB));
	return MIB;
}

#define HELD 8
static CUdeviceptr held[HELD];
__attribute__((noinline)) static void holds(int on)
{
	for (int i = 0; i < HELD; i++)
		must(on ? cuMemAlloc_v2(&held[i], 4 * MIB) : cuMemFree_v2(held[i]));
}

static struct row {
	const char *name;
	uint64_t (*function)(void);
	_Atomic uint64_t sum;
} rows[] = {
	{"churns", churns, 0},
	{"leaks", leaks, 0},
	{"asks_too_much", asks_too_much, 0},
	{"on_second_device", on_second_device, 0},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static void use_first_device(void)
{
	CUcontext c;

	must(cuDevicePrimaryCtxRetain(&c, 0));
	must(cuCtxSetCurrent(c));
}

static void *works(void *arg)
{
	struct row *r = arg;

	use_first_device();
	for (;; pause_ms(PAUSE_MS))
		r->sum += r->function();
	return NULL;
}

static void *keeps(void *arg)
{
	use_first_device();
	for (int on = 1;; on = !on) {
		holds(on);
		sleep(20);
	}
	return arg;
}

static void start(void *(*function)(void *), void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, function, arg))
		abort();
}

int main(void)
{
	must(cuInit(0));
	for (size_t i = 0; i < N_ROWS; i++)
		start(works, &rows[i]);
	start(keeps, NULL);
	for (;; sleep(1)) {
		printf("known %jd", (intmax_t)time(NULL));
		for (size_t i = 0; i < N_ROWS; i++)
			printf(" %s=%" PRIu64, rows[i].name, rows[i].sum);
		puts("");
		fflush(stdout);
	}
}
