/* SPDX-License-Identifier: Apache-2.0 */
/* shares: 50, 30 and 20 % at depths 3, 10 and 42. Built in many ways. */
#include "burn.h"

static ALONE void alpha(uint64_t n)
{
	SPIN(n);
}

static ALONE void beta(uint64_t n)
{
	SPIN(n);
}
#define STEP(name, next)                                                                           \
	static ALONE void name(uint64_t n)                                                         \
	{                                                                                          \
		next(n);                                                                           \
		STAY();                                                                            \
	}
STEP(beta_7, beta)
STEP(beta_6, beta_7)
STEP(beta_5, beta_6)
STEP(beta_4, beta_5)
STEP(beta_3, beta_4)
STEP(beta_2, beta_3)
STEP(beta_1, beta_2)

static ALONE void gamma_(int depth, uint64_t n)
{
	if (depth > 1)
		gamma_(depth - 1, n);
	else
		SPIN(n);
	STAY();
}

static struct share shares[] = {{"alpha", 0}, {"beta", 0}, {"gamma_", 0}};

static ALONE void work(void)
{
	uint64_t dice = burn_random(10), n = burn_steps();

	if (dice < 5)
		BURN(shares[0], alpha(n));
	else if (dice < 8)
		BURN(shares[1], beta_1(n));
	else
		BURN(shares[2], gamma_(40, n));
}

int main(int argc, char **argv)
{
	(void)argc;
	burn_begin(argv);
	while (burn_more())
		work();
	return burn_end(shares, 3);
}
