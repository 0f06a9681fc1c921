/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work ROUNDS [now]: does the same steps in each round, in stacks of 3, 33 and 62 frames, and
 * prints the CPU time for each depth. This time includes what a profiler adds, which is more in the
 * deep stacks. Without `now`, the program waits for a byte on standard input first.
 */
#include "burn.h"

#define STEPS 2000000ull

static ALONE void shallow(uint64_t n)
{
	SPIN(n);
}

#define DOWN(name)                                                                                 \
	static ALONE void name(int depth, uint64_t n)                                              \
	{                                                                                          \
		if (depth > 1)                                                                     \
			name(depth - 1, n);                                                        \
		else                                                                               \
			SPIN(n);                                                                   \
		STAY();                                                                            \
	}
DOWN(middle)
DOWN(deep)

int main(int argc, char **argv)
{
	struct share shares[] = {{"shallow", 0}, {"middle", 0}, {"deep", 0}};
	char c;

	if (argc < 2 || write(1, "ready\n", 6) != 6 || (argc == 2 && read(0, &c, 1) != 1))
		return 3;
	for (int i = atoi(argv[1]); i; i--) {
		BURN(shares[0], shallow(STEPS));
		BURN(shares[1], middle(31, STEPS));
		BURN(shares[2], deep(60, STEPS));
	}
	for (int i = 0; i < 3; i++)
		printf("%s %llu\n", shares[i].name, (unsigned long long)shares[i].ns);
	printf("done\n");
	fflush(stdout);
	return read(0, &c, 1) < 0;
}
