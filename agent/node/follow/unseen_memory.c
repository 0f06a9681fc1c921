/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether the probes of allocators miss memory. For each process whose probes stay attached,
 * it compares how much memory the process uses with what the probes saw. Go and Java are left out,
 * because they have heaps of their own, for which other problems are reported. memory_reads.c reads
 * the memory. Loop thread.
 */
#include "node/follow/internal.h"

#include "node/alloc/alloc.h"

#include <stdlib.h>

/* Returns the sampleBytes of the event whose bytes probes_attached_bytes() returns. */
static uint64_t sample_bytes(const struct tracked *t)
{
	uint64_t until_ns, bytes = 0;
	struct owner *o =
		proc_containers_owner(t->follow->config.containers, t->cgroup_id, &until_ns);

	if (o)
		bytes = t->probed[PROBES_MEMORY].attached_mask & 1u << EVENT_MEM_ALLOC
				? o->settings.alloc_sample_bytes
				: o->settings.inuse_sample_bytes;
	proc_owner_unref(o);
	return bytes;
}

bool follow_unseen_is_due(const struct tracked *t, bool all)
{
	const struct probed *x = &t->probed[PROBES_MEMORY];

	return x->attached && x->sites && !x->sites->own_heap && (all || !t->compared.unseen.begun);
}

void follow_unseen_compare(struct tracked *t, const struct proc_memory *now)
{
	struct compared *c = &t->compared;
	uint64_t bytes;

	if (!t->probed[PROBES_MEMORY].attached)
		return;
	bytes = t->follow->calls->probes->attached_bytes(t->probed[PROBES_MEMORY].attached);
	if (!learn_unseen(&c->unseen, now, bytes, sample_bytes(t)))
		return;
	free(c->text);
	c->text = learn_unseen_text(&c->unseen);
	counter_add(counter("podflame_memory_unseen_total", NULL, NULL), 1);
}

void follow_unseen_begin_anew(struct tracked *t)
{
	learn_unseen_begin_anew(&t->compared.unseen);
}

void follow_unseen_forget(struct tracked *t)
{
	free(t->compared.text);
	t->compared = (struct compared){0};
}
