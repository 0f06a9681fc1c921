// SPDX-License-Identifier: Apache-2.0
/* Until the modules are there. */
#include "node/alloc_go.h"
#include "node/overhead.h"

#include <stdlib.h>

#define STUB __attribute__((weak))
STUB int alloc_go_drain(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	(void)g;
	(void)who;
	(void)ret;
	return -EOPNOTSUPP;
}
