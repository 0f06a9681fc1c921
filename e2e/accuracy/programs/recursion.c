/* SPDX-License-Identifier: Apache-2.0 */
/* recursion: the same function 500 and 100 times on the stack. */
#include "burn.h"

#define RECURSE(name)                                                                              \
	static ALONE uint64_t name(int depth, uint64_t n)                                          \
	{                                                                                          \
		uint64_t local = n ^ (uint64_t)depth;                                              \
                                                                                                   \
		if (depth > 1)                                                                     \
			local += name(depth - 1, n);                                               \
		else                                                                               \
			SPIN(n);                                                                   \
		STAY();                                                                            \
		return local;                                                                      \
	}
RECURSE(down_500)
RECURSE(down_100)

int main(int argc, char **argv)
{
	struct share shares[] = {{"down_500", 0}, {"down_100", 0}};

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		if (burn_random(10) < 7)
			BURN(shares[0], burn_sink = down_500(500, burn_steps()));
		else
			BURN(shares[1], burn_sink = down_100(100, burn_steps()));
	return burn_end(shares, 2);
}
