/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A known answer: about 70 % of the CPU time is spent in deep70 and 30 % in deep30, each below ten
 * functions. The program counts its work, and prints the exact share (in percent) at SIGTERM. It
 * does not measure time, because an emulated CPU stops at times. The clock counts such a stop, but
 * no sample is taken in it.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink, work70, work30;
static volatile sig_atomic_t stopped;

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

__attribute__((noinline)) static void spin(void)
{
	for (int i = 0; i < 20000; i++)
		sink += i;
}

__attribute__((noinline)) static int deep70(uint64_t ns)
{
	uint64_t end = cpu_ns() + ns;

	for (; cpu_ns() < end; work70++)
		spin();
	return 1;
}

__attribute__((noinline)) static int deep30(uint64_t ns)
{
	uint64_t end = cpu_ns() + ns;

	for (; cpu_ns() < end; work30++)
		spin();
	return 2;
}

#define CHAIN(n, next)                                                                             \
	__attribute__((noinline)) static int chain_##n(int (*f)(uint64_t), uint64_t ns)            \
	{                                                                                          \
		volatile char room[8 * n];                                                         \
                                                                                                   \
		room[0] = 1;                                                                       \
		return next + room[0];                                                             \
	}
CHAIN(10, f(ns))
CHAIN(9, chain_10(f, ns))
CHAIN(8, chain_9(f, ns))
CHAIN(7, chain_8(f, ns))
CHAIN(6, chain_7(f, ns))
CHAIN(5, chain_6(f, ns))
CHAIN(4, chain_5(f, ns))
CHAIN(3, chain_4(f, ns))
CHAIN(2, chain_3(f, ns))
CHAIN(1, chain_2(f, ns))

static void on_term(int signal)
{
	(void)signal;
	stopped = 1;
}

int main(void)
{
	signal(SIGTERM, on_term);
	while (!stopped) {
		/* random lengths, so that the work does not follow the sampler's period */
		uint64_t unit = 1000000 + rand() % 1000000;

		sink += chain_1(deep70, 7 * unit);
		sink += chain_1(deep30, 3 * unit);
	}
	printf("%.2f\n", 100.0 * work70 / (work70 + work30));
	return 0;
}
