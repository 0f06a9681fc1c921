/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tailcall: if a function is reached by a jump, its caller is the caller of the function that
 * jumped.
 */
#include "burn.h"

static ALONE uint64_t last(uint64_t n)
{
	SPIN(n);
	return n;
}

static ALONE uint64_t other(uint64_t n)
{
	SPIN(n);
	return n + 1;
}

static uint64_t (*volatile target)(uint64_t) = last;

static ALONE uint64_t jumps(uint64_t n)
{
	return target(n + 1);
}

static ALONE uint64_t jumps_twice(uint64_t n)
{
	uint64_t space[16];

	for (int i = 0; i < 16; i++)
		space[i] = n + burn_random(2);
	burn_sink = space[n & 15];
	return jumps(n);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"last", 0}, {"other", 0}};

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 6)
			BURN(shares[0], burn_sink = jumps_twice(burn_steps()));
		else
			BURN(shares[1], burn_sink = other(burn_steps()));
	return burn_end(shares, 2);
}
