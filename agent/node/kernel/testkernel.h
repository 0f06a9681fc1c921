/* SPDX-License-Identifier: Apache-2.0 */
/* For tests only: a struct kernel in the state ON, although no programs are loaded. */
#pragma once

#include "node/kernel/internal.h"

#include <setjmp.h>

#include <cmocka.h>

/* unwind: what kernel_unwind() returns; borrowed. */
static inline struct kernel *testkernel_new(struct work *w, struct unwind *unwind)
{
	struct kernel_config c = {.work = w, .containers = w->containers};
	struct kernel *k;

	assert_int_equal(kernel_new(&c, &k, NULL), 0);
	k->state = ON;
	k->unwind = unwind;
	return k;
}

static inline struct kernel *testkernel_free(struct kernel *k)
{
	k->unwind = NULL;
	return kernel_free(k);
}
