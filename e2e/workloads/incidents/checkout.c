/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shop's checkout. Usage: checkout v1|v2. Both serve the same requests, but v2 rounds prices in
 * another way, which takes ten times as long: a request takes 5 ms of CPU time with v1, and 14 ms
 * with v2.
 */
#include "work.h"
#include <string.h>

FUNCTION void read_cart(void)
{
	compute(2000);
}

FUNCTION void round_price(void)
{
	compute(1000);
}

FUNCTION void round_slowly(void)
{
	compute(10000);
}

FUNCTION void price_of_cart(int is_v2)
{
	if (is_v2)
		round_slowly();
	else
		round_price();
}

FUNCTION void take_payment(void)
{
	compute(2000);
}

FUNCTION void serve_checkout(int is_v2)
{
	read_cart();
	price_of_cart(is_v2);
	take_payment();
}

int main(int argc, char **argv)
{
	int is_v2 = argc > 1 && !strcmp(argv[1], "v2");

	for (;;) {
		serve_checkout(is_v2);
		pause_us(40000);
	}
}
