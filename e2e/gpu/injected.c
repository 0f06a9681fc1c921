/* SPDX-License-Identifier: Apache-2.0 */
/* A library that CUDA_INJECTION64_PATH may name: for standin_test.c. */
#include <stdlib.h>

int InitializeInjection(void);

int InitializeInjection(void)
{
	return setenv("INJECTED", "yes", 1) == 0;
}
