/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attacker SECONDS: does for so long what costs a profiler much: nearly every sample, wait and
 * allocation has a stack of its own.
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define N_FUNCTIONS 16
#define DEPTH	    24 /* 16^24 stacks */
#define MOST_BYTES  65536
#define WAIT_NS	    60000 /* more than the 50us that off-cpu looks at */

static uint64_t state = 1;
static volatile uint64_t sink;

static unsigned random_bits(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 16);
}

static void leaf(void)
{
	void *p = malloc(random_bits() % MOST_BYTES + 1);

	sink += (uintptr_t)p;
	for (unsigned i = 0; i < 2000; i++)
		sink += i;
	if (random_bits() % 8 == 0)
		nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
	free(p);
}

typedef void function(int depth);
static function *const functions[N_FUNCTIONS];

static void next(int depth)
{
	if (depth > 0)
		functions[random_bits() % N_FUNCTIONS](depth - 1);
	else
		leaf();
}

/* Work behind the call keeps the compiler from making a jump of it. */
#define FUNCTION(n)                                                                                \
	__attribute__((noinline)) static void f##n(int depth)                                      \
	{                                                                                          \
		next(depth);                                                                       \
		sink += n;                                                                         \
	}
FUNCTION(0)
FUNCTION(1)
FUNCTION(2)
FUNCTION(3)
FUNCTION(4)
FUNCTION(5)
FUNCTION(6)
FUNCTION(7)
FUNCTION(8)
FUNCTION(9)
FUNCTION(10)
FUNCTION(11)
FUNCTION(12)
FUNCTION(13)
FUNCTION(14)
FUNCTION(15)

static function *const functions[N_FUNCTIONS] = {f0, f1, f2,  f3,  f4,	f5,  f6,  f7,
						 f8, f9, f10, f11, f12, f13, f14, f15};

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);

	state = (uint64_t)time(NULL) << 20 | (uintptr_t)&end >> 4 | 1;
	while (time(NULL) < end)
		next(DEPTH);
	return 0;
}
