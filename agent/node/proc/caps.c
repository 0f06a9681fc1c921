/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the limits of containers that are lower than in the plan, because of overheadPercent: the
 * sampling rate, and the shares of context switches that are recorded. This file owns the hash
 * table of these limits. Loop thread.
 */
#include "node/proc/internal.h"

#include <stdlib.h>

#define MAX_CAPS 4096 /* each namespace has a share */

static struct cap *find(const struct caps *caps, const char *container_id)
{
	struct cap *c;

	HASH_FIND_STR(caps->by_id, container_id, c);
	return c;
}

static void drop(struct caps *caps, struct cap *c)
{
	HASH_DEL(caps->by_id, c);
	shares_remove(&caps->shares, c->ns);
	free(c);
}

const struct cap *proc_caps_of(const struct caps *caps, const char *container_id)
{
	static const struct cap none = {.off_note = UINT32_MAX, .off_keep = UINT32_MAX};
	const struct cap *c = find(caps, container_id);

	return c ? c : &none;
}

/* Returns NULL if the container's namespace has its share already. */
static struct cap *make(struct caps *caps, const struct cap *like)
{
	struct cap *c;

	if (!shares_may_add(&caps->shares, like->ns, MAX_CAPS)) {
		counter_add(counter("podflame_container_limits_dropped_total", NULL, NULL), 1);
		return NULL;
	}
	c = xcalloc(1, sizeof(*c));
	c->ns = like->ns;
	snprintf(c->id, sizeof(c->id), "%s", like->id);
	HASH_ADD_STR(caps->by_id, id, c);
	shares_add(&caps->shares, c->ns);
	return c;
}

bool proc_caps_set(struct caps *caps, const struct cap *wanted)
{
	struct cap *c = find(caps, wanted->id);

	if (!wanted->hz && wanted->off_note == UINT32_MAX && wanted->off_keep == UINT32_MAX) {
		if (c)
			drop(caps, c);
		return true;
	}
	if (!c)
		c = make(caps, wanted);
	if (!c)
		return false;
	c->hz = wanted->hz;
	c->off_note = wanted->off_note;
	c->off_keep = wanted->off_keep;
	return true;
}

void proc_caps_done(struct caps *caps)
{
	struct cap *c, *next;

	HASH_ITER (hh, caps->by_id, c, next)
		drop(caps, c);
}
