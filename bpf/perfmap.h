/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * perfmap: walks generated code of a process that writes a perf map, if no other runtime walks that
 * code (V8, .NET, Wasmtime, ...; tools/perf/Documentation/jit-interface.txt of the kernel). The
 * walk follows frame pointers, which V8 and .NET keep. Words of a frame: address of the
 * instruction, generation.
 */
#pragma once

#include "unwind_tables.h"

/* What agent/node/runtime/perfmap/perfmap.c gives the kernel about a process. */
struct pf_perfmap {
	uint64_t generation; /* raised when the runtime has reused addresses for other functions */
	/* not 0: the perf map has CPython's trampolines (-X perf), which keep no frame pointer */
	uint64_t trampolines;
};

#ifdef PF_WALKER
static __always_inline int pf_runtime_unknown(struct pf_scratch *s);

/* add $8,%rsp; ret: Python/asm_trampoline.S of 3.12 and 3.13 */
#define PF_TRAMPOLINE_END 0xc308c48348ull

/* If the frame is that of a trampoline, goes to its caller; else returns -1. */
static __noinline int pf_perfmap_trampoline(struct pf_scratch *s)
{
	struct pf_walk *w = &s->walk;
	uint64_t code, ra;

	if (!pf_read(&code, sizeof(code), w->ip) || (code & 0xffffffffff) != PF_TRAMPOLINE_END ||
	    !pf_word(s, w->sp + 8, &ra))
		return -1;
	w->by_record = false;
	return pf_caller(w, ra, w->sp + 16);
}

static __always_inline int pf_perfmap_unwind(struct pf_scratch *s, const struct pf_perfmap *d,
					     struct pf_runtime_walk *r)
{
	const struct pf_walk *w = &s->walk;
	int over = -1;

	/* Minus 1, because a return address may be the first address of the next function. */
	r->at = w->exact ? w->ip : w->ip - 1;
	if (d->trampolines && !w->exact)
		over = pf_perfmap_trampoline(s);
	return over < 0 ? pf_runtime_unknown(s) : over;
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
