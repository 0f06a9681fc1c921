/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the readers of trace contexts: where a program's thread-local variables are. */
#pragma once

#include "node/runtime/internal.h"

/* Where a thread-local variable is, as struct pf_otel has it. */
struct tls_place {
	int64_t offset;	 /* from the thread pointer, or in the module's block */
	uint32_t module; /* 0: from the thread pointer */
};
/*
 * Finds a variable that e exports, offset being its own in e's TLS image: by the slot that the dynamic
 * linker fills for e's accesses to it; in an executable without such a slot by the layout. -EAGAIN: the
 * slot is not filled yet. -ENOTSUP: e has no way to the variable that this function knows.
 */
int runtime_tls_find(const struct loaded_elf *e, const char *name, uint64_t offset, struct tls_place *ret);
