/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* python: CPython's part of the walk. */
#pragma once

#include "tables.h"

/* What agent/node/runtime/python.c tells of a process. */
struct pf_python {
	uint64_t todo;
};

#ifdef PF_WALKER
static __always_inline int pf_python_unwind(struct pf_scratch *s, const struct pf_python *d,
					    struct pf_runtime_walk *r)
{
	(void)d;
	(void)r;
	(void)s;
	return 1;
}

static __always_inline int pf_python_frame(struct pf_scratch *s, const struct pf_python *d,
					   struct pf_runtime_walk *r)
{
	(void)s;
	(void)d;
	(void)r;
	return 1;
}
#endif
