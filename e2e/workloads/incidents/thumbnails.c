/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes small pictures, and could use a whole CPU. Its limit is far below. It rests for a
 * moment after each picture.
 */
#include "work.h"

FUNCTION void scale_picture(void)
{
	compute(30000);
}

FUNCTION void wait_for_picture(void)
{
	pause_us(2000);
}

int main(void)
{
	for (;;) {
		scale_picture();
		wait_for_picture();
	}
}
