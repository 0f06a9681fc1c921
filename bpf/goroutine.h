/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * goroutine: leads a walk from the scheduler's stack to the goroutine that waits for the scheduler.
 * runtime.morestack saves the goroutine's position in g.sched and calls runtime.newstack on the
 * scheduler's stack. No register leads back, but the thread's g does (g -> m -> curg, as for
 * labels: trace_context.h).
 */
#pragma once

#include "trace_context.h"

#ifdef PF_WALKER
static __always_inline const struct pf_golabels *pf_go_program(const struct pf_walk *w)
{
	for (uint32_t k = 0; k < PF_RUNTIMES_MAX; k++)
		if (k < w->process.n_runtimes && w->process.runtimes[k].kind == PF_RUNTIME_GOLABELS)
			return pf_runtime_data(w->process.runtimes[k].data,
					       sizeof(struct pf_golabels));
	return NULL;
}

/* Finds the goroutine of this thread. *ret 0: the scheduler has already left the goroutine. */
static __always_inline bool pf_goroutine(const struct pf_walk *w, const struct pf_golabels *d,
					 uint64_t *ret)
{
	uint64_t at;

	return pf_read(&at, sizeof(at), w->thread_pointer + d->g) &&
	       pf_read(&at, sizeof(at), at + d->m) && pf_read(ret, sizeof(*ret), at + d->curg);
}

/* Continues the walk at the goroutine's call of runtime.morestack. */
PF_ONCE int pf_by_goroutine(struct pf_scratch *s)
{
	uint64_t g, bp, sched[2], stack[2]; /* sched: sp, pc; stack: lo, hi */
	const struct pf_golabels *d;
	struct pf_walk *w;

	if (!s)
		return 1;
	w = &s->walk;
	pf_note_other(s);
	d = pf_go_program(w);
	if (!d || !w->thread_pointer)
		return pf_end(w, PF_END_GOROUTINE);
	if (!pf_goroutine(w, d, &g))
		return pf_end(w, PF_END_READ);
	/*
	 * The scheduler has left the preempted goroutine, so the stack is the scheduler's own, as
	 * after mcall.
	 */
	if (!g)
		return pf_end(w, PF_END_ROOT);
	if (!pf_read(stack, sizeof(stack), g) || !pf_read(sched, sizeof(sched), g + d->sched) ||
	    !pf_read(&bp, sizeof(bp), g + d->sched_bp))
		return pf_end(w, PF_END_READ);
	/*
	 * For an instruction or two in copystack(), `stack` and `sched` belong to different stacks.
	 */
	if (sched[0] <= stack[0] || sched[0] >= stack[1])
		return pf_end(w, PF_END_GOROUTINE);
	w->bp = bp;
	w->bp_lost = false;
	w->by_record = false;
	return pf_caller(w, sched[1], sched[0]);
}
#endif
