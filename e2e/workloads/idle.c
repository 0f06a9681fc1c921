/* SPDX-License-Identifier: Apache-2.0 */
/* Does nothing, for as long as it is let: a pod that is selected and has no sample to give. */
#include <unistd.h>

int main(void)
{
	for (;;)
		pause();
}
