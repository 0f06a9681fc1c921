/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the readers of trace contexts: finds thread-local variables of a program. Reader's
 * thread.
 */
#pragma once

#include "node/runtime/internal.h"

/* The place of a thread-local variable, as in struct pf_otel. */
struct tls_place {
	int64_t offset;	 /* from the thread pointer, or in the module's block */
	uint32_t module; /* 0: offset counts from the thread pointer */
};
/*
 * Finds a variable that e exports; offset: its offset in e's TLS image. It uses the slot that the
 * dynamic linker fills for e's own accesses; in an executable without such a slot, the layout.
 * -EAGAIN: the slot is not filled yet. -ENOTSUP: e accesses the variable in a way that this
 * function does not know.
 */
int runtime_tls_find(const struct loaded_elf *e, const char *name, uint64_t offset,
		     struct tls_place *ret);
