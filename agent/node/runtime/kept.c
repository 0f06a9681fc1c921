/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runtimes keep of processes from one name to the next: lines, code, texts. Each process has a limit, which it can
 * make full for next to nothing, and there may be thousands: so all of them have one, too.
 */
#include "node/runtime/internal.h"

#include <stdatomic.h>

#define KEPT_ALL_BYTES (64u << 20) /* half as much more for those that come late */

static _Atomic size_t all_bytes, n_owners;

void kept_set(size_t *own, size_t bytes)
{
	if (!*own && bytes)
		atomic_fetch_add(&n_owners, 1);
	else if (*own && !bytes)
		atomic_fetch_sub(&n_owners, 1);
	atomic_fetch_add(&all_bytes, bytes - *own);
	*own = bytes;
}

bool kept_has_room(size_t own, size_t bytes, size_t most)
{
	size_t all = atomic_load(&all_bytes) + bytes, n = atomic_load(&n_owners);

	if (own + bytes > most || all > KEPT_ALL_BYTES + KEPT_ALL_BYTES / 2)
		return false;
	return all <= KEPT_ALL_BYTES || own + bytes <= KEPT_ALL_BYTES / 2 / MAX(n, (size_t)1);
}
