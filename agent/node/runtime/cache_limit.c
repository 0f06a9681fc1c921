/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of the runtimes' caches: lines, code and texts of a process that they keep, so that
 * they need not read them again for the next name. Each process has a limit, which it reaches
 * easily. There may be thousands of processes, so all of them together have a limit, too. In a
 * child these are the processes of its namespace. Any thread may call its functions.
 */
#include "node/runtime/internal.h"

#include <stdatomic.h>

/*
 * bytes of all processes' caches together. Above it, a process whose cache is small may still add
 * to it, until all caches have 1.5 times this limit.
 */
#define CACHES_ALL_BYTES (12u << 20)

static _Atomic size_t all_bytes, n_owners;

void runtime_cache_set(size_t *own, size_t bytes)
{
	if (!*own && bytes)
		atomic_fetch_add(&n_owners, 1);
	else if (*own && !bytes)
		atomic_fetch_sub(&n_owners, 1);
	atomic_fetch_add(&all_bytes, bytes - *own);
	*own = bytes;
}

bool runtime_cache_has_room(size_t own, size_t bytes, size_t most)
{
	size_t all = atomic_load(&all_bytes) + bytes, n = atomic_load(&n_owners);

	if (own + bytes > most || all > CACHES_ALL_BYTES + CACHES_ALL_BYTES / 2)
		return false;
	return all <= CACHES_ALL_BYTES || own + bytes <= CACHES_ALL_BYTES / 2 / MAX(n, (size_t)1);
}

bool runtime_caches_are_full(void)
{
	return atomic_load(&all_bytes) >= CACHES_ALL_BYTES;
}
