/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vdso: asks for the time of day again and again. The code that answers is the vdso, which the
 * kernel maps into the process.
 */
#include "burn.h"

static ALONE void asks(uint64_t n)
{
	struct timespec t;

	for (uint64_t i = n / 32; i; i--) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		burn_sink += (uint64_t)t.tv_nsec;
	}
}

static ALONE void plain(uint64_t n)
{
	SPIN(n);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"asks", 0}, {"plain", 0}};

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 6)
			BURN(shares[0], asks(burn_steps()));
		else
			BURN(shares[1], plain(burn_steps()));
	return burn_end(shares, 2);
}
