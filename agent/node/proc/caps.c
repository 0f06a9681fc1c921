/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the limits of containers that are lower than in the plan, because of overheadPercent: the
 * sampling rate, and the shares of context switches that are recorded. This file owns the hash
 * table of these limits. Loop thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>

#define MAX_CAPS 4096

static struct cap *find(struct cap *caps, const char *container_id)
{
	struct cap *c;

	HASH_FIND_STR(caps, container_id, c);
	return c;
}

static void drop(struct cap **caps, struct cap *c)
{
	HASH_DEL(*caps, c);
	free(c);
}

const struct cap *proc_caps_of(const struct cap *caps, const char *container_id)
{
	static const struct cap none = {.off_note = UINT32_MAX, .off_keep = UINT32_MAX};
	const struct cap *c = find((struct cap *)caps, container_id);

	return c ? c : &none;
}

bool proc_caps_set(struct cap **caps, const char *container_id, unsigned hz, uint32_t off_note,
		   uint32_t off_keep)
{
	struct cap *c = find(*caps, container_id);

	if (c)
		drop(caps, c);
	if (!hz && off_note == UINT32_MAX && off_keep == UINT32_MAX)
		return true;
	if (HASH_COUNT(*caps) >= MAX_CAPS) {
		counter_add(counter("podflame_container_limits_dropped_total", NULL, NULL), 1);
		return false;
	}
	c = xcalloc(1, sizeof(*c));
	*c = (struct cap){.hz = hz, .off_note = off_note, .off_keep = off_keep};
	snprintf(c->id, sizeof(c->id), "%s", container_id);
	HASH_ADD_STR(*caps, id, c);
	return true;
}

void proc_caps_done(struct cap **caps)
{
	struct cap *c, *next;

	HASH_ITER (hh, *caps, c, next)
		drop(caps, c);
}
