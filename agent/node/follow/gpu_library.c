/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the status of the library that reports the work of GPUs. If the library cannot work, for
 * example because another profiler has CUPTI or there is no libcupti, this is a problem of its
 * process. Loop thread.
 */
#include "node/follow/internal.h"

#include "node/learn/sites.h"

#include <stdlib.h>

void follow_gpu_library_forget(struct tracked *t)
{
	free(TAKE_PTR(t->library_problem));
}

/* Reads the status while probes are attached. Between two spans, the last problem stays. */
static void look(struct tracked *t)
{
	const struct probed *x = &t->probed[PROBES_GPU];
	struct on_gpu_status s = {0};
	uint64_t attached_ns;

	if (!x->attached)
		return;
	attached_ns = now_mono_ns() - x->attached_at_ns;
	/* if the map cannot be read, the library counts as silent */
	(void)t->follow->calls->probes->attached_status(x->attached, &s);
	follow_gpu_library_forget(t);
	t->library_problem = learn_library_problem(&s, attached_ns);
}

void follow_gpu_library_tick(struct follow *f)
{
	for (struct tracked *t = f->tracked; t; t = t->hh.next)
		look(t);
}
