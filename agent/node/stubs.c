// SPDX-License-Identifier: Apache-2.0
/* Until the modules are there. */
#include "node/alloc_go.h"
#include "node/overhead.h"

#include <stdlib.h>

#define STUB __attribute__((weak))
STUB int alloc_sites_find(const struct runtime_look *look, unsigned mask, struct alloc_sites **ret)
{
	(void)look;
	(void)mask;
	(void)ret;
	return -EOPNOTSUPP;
}
STUB struct alloc_sites *alloc_sites_free(struct alloc_sites *s)
{
	free(s);
	return NULL;
}
STUB int alloc_go_drain(struct alloc_go_heap *g, const struct go_process *who, struct drain **ret)
{
	(void)g;
	(void)who;
	(void)ret;
	return -EOPNOTSUPP;
}
