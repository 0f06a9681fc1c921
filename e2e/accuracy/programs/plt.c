/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plt: calls empty functions of a library, so that much of the time is spent in the PLT. With
 * -DLIBRARY, this file is the library.
 */
#include "burn.h"

#ifdef LIBRARY
int nothing(int x)
{
	return x + 1;
}
#else
int nothing(int x);

static ALONE void calls(uint64_t n)
{
	int x = 0;

	for (uint64_t i = n / 2; i; i--)
		x = nothing(x);
	burn_sink = (uint64_t)x;
}

static ALONE void plain(uint64_t n)
{
	SPIN(n);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"calls", 0}, {"plain", 0}};

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 7)
			BURN(shares[0], calls(burn_steps()));
		else
			BURN(shares[1], plain(burn_steps()));
	return burn_end(shares, 2);
}
#endif
