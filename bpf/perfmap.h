/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * perfmap: generated code that no other runtime walks, of a process that writes a perf map (V8, .NET,
 * Wasmtime, ...; tools/perf/Documentation/jit-interface.txt of the kernel). Such code is walked by
 * frame pointers, which V8 and .NET keep. Words of a frame: address of the instruction, generation.
 */
#pragma once

#include "tables.h"

/* What agent/node/runtime/perfmap.c tells of a process. */
struct pf_perfmap {
	uint64_t generation; /* raised when addresses were given to other functions */
};

#ifdef PF_WALKER
static __always_inline int pf_runtime_unknown(struct pf_scratch *s);

static __always_inline int pf_perfmap_unwind(struct pf_scratch *s, const struct pf_perfmap *d,
					     struct pf_runtime_walk *r)
{
	const struct pf_walk *w = &s->walk;

	(void)d;
	/* A call's return address may be the first of the next function. */
	r->at = w->exact ? w->ip : w->ip - 1;
	return pf_runtime_unknown(s);
}

static __always_inline int pf_perfmap_frame(struct pf_scratch *s, const struct pf_perfmap *d,
					    struct pf_runtime_walk *r)
{
	if (!s->walk.first)
		return 1;
	if (pf_push_runtime(s, PF_RUNTIME_PERFMAP, 0, r->at, d->generation))
		return 1;
	return 0;
}
#endif
