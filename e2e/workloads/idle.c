/* SPDX-License-Identifier: Apache-2.0 */
/* Does nothing until it is killed: a pod that is selected and gives no samples. */
#include <unistd.h>

int main(void)
{
	for (;;)
		pause();
}
