/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames: functions whose stack pointer has no constant distance from the frame: alloca, variable
 * arrays, realigned stacks.
 */
#include <alloca.h>

#include "burn.h"

static ALONE void use(void *p)
{
	__asm__ volatile("" ::"r"(p) : "memory");
}

static ALONE void with_alloca(uint64_t n)
{
	char *p = (char *)alloca(16 + burn_random(2000));

	use(p);
	SPIN(n);
	use(p);
}

static ALONE void with_array(uint64_t n)
{
	volatile char space[1 + burn_random(3000)];

	use((void *)space);
	SPIN(n);
	use((void *)space);
}

static ALONE void realigned_leaf(uint64_t n)
{
	SPIN(n);
}

static ALONE void realigned(uint64_t n)
{
	__attribute__((aligned(64))) volatile char aligned[128];

	use((void *)aligned);
	realigned_leaf(n);
	use((void *)aligned);
}

/*
 * The leaf of both(), which uses alloca() on a realigned stack. gcc finds the frame of both()
 * through a saved r10 (an expression in the tables).
 */
static ALONE void both_leaf(uint64_t n)
{
	SPIN(n);
}

static ALONE void both(uint64_t n, int a, int b, int c, int d, int e, int f, int on_stack)
{
	__attribute__((aligned(64))) volatile char aligned[64];
	char *p = (char *)alloca(16 + burn_random(1000));

	use((void *)aligned);
	use(p);
	both_leaf(n + (uint64_t)(a + b + c + d + e + f + on_stack));
	use(p);
}

int main(int argc, char **argv)
{
	struct share shares[] = {
		{"with_alloca", 0}, {"with_array", 0}, {"realigned_leaf", 0}, {"both_leaf", 0}};

	(void)argc;
	burn_begin(argv);
	while (burn_more())
		switch (burn_random(4)) {
		case 0:
			BURN(shares[0], with_alloca(burn_steps()));
			break;
		case 1:
			BURN(shares[1], with_array(burn_steps()));
			break;
		case 2:
			BURN(shares[2], realigned(burn_steps()));
			break;
		default:
			BURN(shares[3], both(burn_steps(), 1, 2, 3, 4, 5, 6, 7));
		}
	return burn_end(shares, 4);
}
