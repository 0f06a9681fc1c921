/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syscalls: most of the time is spent in the kernel. In a stack, the frames of the process are
 * below those of the kernel.
 */
#include "burn.h"

static char buffer[1 << 20];
static int zero;

static ALONE void reads(uint64_t n)
{
	for (uint64_t i = n / 30000; i; i--)
		if (read(zero, buffer, sizeof(buffer)) < 0)
			exit(4);
}

static ALONE void asks(uint64_t n)
{
	for (uint64_t i = n / 300; i; i--)
		if (lseek(zero, 0, SEEK_SET) < 0)
			exit(5);
}

static ALONE void plain(uint64_t n)
{
	SPIN(n);
}

int main(int argc, char **argv)
{
	struct share shares[] = {{"reads", 0}, {"asks", 0}, {"plain", 0}};

	(void)argc;
	zero = open("/dev/zero", O_RDONLY);
	burn_begin(argv);
	while (burn_more())
		switch (burn_random(3)) {
		case 0:
			BURN(shares[0], reads(burn_steps()));
			break;
		case 1:
			BURN(shares[1], asks(burn_steps()));
			break;
		default:
			BURN(shares[2], plain(burn_steps()));
		}
	return burn_end(shares, 3);
}
