/* SPDX-License-Identifier: Apache-2.0 */
/* Does nothing until it is killed. A pod that runs this is selected and gives no samples. */
#include <unistd.h>

int main(void)
{
	for (;;)
		pause();
}
