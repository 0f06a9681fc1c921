/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the readers of trace contexts: finds thread-local variables of a program. Runs on the
 * reader's thread.
 */
#pragma once

#include "node/runtime/internal.h"

/* Where a thread-local variable is, as in struct pf_otel. */
struct tls_place {
	/*
	 * the variable's distance from the thread pointer, or from the beginning of the module's
	 * block
	 */
	int64_t offset;
	uint32_t module; /* number of the module; 0: the offset is from the thread pointer */
};
/*
 * Finds a variable that e exports. offset: the variable's offset in e's TLS image. The function
 * reads the slot that the dynamic linker fills for e's own accesses. If e is an executable without
 * such a slot, it calculates the place from the layout. -EAGAIN: the slot is not filled yet.
 * -ENOTSUP: e accesses the variable in a way that this function does not know.
 */
int runtime_tls_find(const struct loaded_elf *e, const char *name, uint64_t offset,
		     struct tls_place *ret);
