/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * runtimes: programs that run inside other programs (Python, Java, Lua), a row and a file for each.
 * bpf/<name>.h has struct pf_<name>, the data that user space gives the kernel about a process, and
 * with PF_WALKER the runtime's part of the walk. Its other half is agent/node/runtime/<name>/.
 * docs/adding-a-language.md.
 *
 * The mapping of the current frame says whether the frame is a runtime's code:
 * - An interpreter's loop is code of a file. It is walked by the file's rules and shown as any
 *   native frame. Then its runtime is called, frame by frame, for the functions of its program that
 *   this loop runs.
 * - Generated code is PF_MANAGED: its runtime unwinds it first, and is called for its frames then.
 *
 * pf_<name>_unwind: sets ip, sp and bp to those of the caller, as the rules do, by pf_caller(): 0,
 * or
 *	pf_end(). It pushes nothing. w->exact says whether ip is the current instruction (then
 *	w->regs are valid) or a return address. It must set bp_lost and by_record, too. sp only
 *	grows: nothing else ends a cycle but PF_STEPS.
 * pf_<name>_frame: pushes the next frame, leaf first, with pf_push_runtime(): 0; 1: this loop has
 *	no more. w->first: the first call for this native frame, whose frame_sp and frame_bp are
 *	still valid. A frame beyond the stack's room may be pushed in vain: the walk ends by itself.
 * Kernels give a program and all its calls 512 bytes of stack and 8 levels; two levels and 160
 * bytes are used here. Both functions get their data of this process and their state of this walk.
 * They run in bpf_loop's one step, so they loop over a few things at most; longer searches take the
 * steps of several frames. Whatever hostile memory can make a walk read has a limit: it runs in an
 * interrupt.
 */
#pragma once

#include "unwind_tables.h"

/* X(NAME, name) */
#define PF_RUNTIMES(X)                                                                             \
	X(PYTHON, python)                                                                          \
	X(JVM, jvm)                                                                                \
	X(LUA, lua)                                                                                \
	X(LUAJIT, luajit)                                                                          \
	X(PERFMAP, perfmap)

/*
 * What gives the ids of the call that a thread works on (trace_context.h). Their data is in
 * pf_process.runtimes like that of runtimes, but they have no code here.
 */
#define PF_CONTEXTS(X)                                                                             \
	X(OTEL, otel)                                                                              \
	X(GOLABELS, golabels)

enum pf_runtime_kind {
	PF_RUNTIME_NONE,
#define X(NAME, name) PF_RUNTIME_##NAME,
	PF_RUNTIMES(X) PF_CONTEXTS(X)
#undef X
		_PF_RUNTIME_MAX,
};

#ifdef PF_WALKER
static __always_inline int pf_trouble(struct pf_scratch *s, uint32_t runtime, uint32_t trouble,
				      uint64_t address)
{
	return pf_push_runtime(s, runtime, PF_TYPE_TROUBLE, trouble, address);
}

/* All that is known of this code is that it may keep frame pointers. */
static __always_inline int pf_runtime_unknown(struct pf_scratch *s)
{
	s->walk.no_table = PF_END_FP;
	s->walk.in_file = false;
	return pf_by_guess(s);
}
#endif

#include "jvm.h"
#include "lua.h"
#include "luajit.h"
#include "perfmap.h"
#include "python.h"

#ifdef PF_WALKER

/* The index of the current runtime among those of the walk and the process. */
static __always_inline uint32_t pf_runtime_slot(const struct pf_walk *w)
{
	return ((w->runtime & 0xff) - 1) % PF_RUNTIMES_MAX;
}

/* The size bytes that user space wrote for it; NULL: it has none. */
static __always_inline const void *pf_runtime_data(uint32_t ref, uint32_t size)
{
	const uint8_t *chunk = pf_chunk(ref);

	return chunk ? pf_in_chunk(chunk, PF_REF_BYTES(ref) & ~7u, size) : NULL;
}

#define X(NAME, name)                                                                              \
	PF_ONCE int pf_##name##_unwind_once(struct pf_scratch *s, const struct pf_##name *d,       \
					    struct pf_runtime_walk *r)                             \
	{                                                                                          \
		return s && d && r ? pf_##name##_unwind(s, d, r) : 1;                              \
	}                                                                                          \
	PF_ONCE int pf_##name##_frame_once(struct pf_scratch *s, const struct pf_##name *d,        \
					   struct pf_runtime_walk *r)                              \
	{                                                                                          \
		return s && d && r ? pf_##name##_frame(s, d, r) : 1;                               \
	}
PF_RUNTIMES(X)
#undef X

/* Calls the current runtime: to unwind its code (true), or for its next frame. */
static __always_inline int pf_runtime_call(struct pf_scratch *s, bool unwind)
{
	uint32_t slot = pf_runtime_slot(&s->walk);
	uint32_t ref = s->walk.process.runtimes[slot].data;
	struct pf_runtime_walk *r = &s->walk.runtimes[slot];

	pf_note_other(s);
	switch (s->walk.process.runtimes[slot].kind) {
#define X(NAME, name)                                                                              \
	case PF_RUNTIME_##NAME: {                                                                  \
		const struct pf_##name *d = pf_runtime_data(ref, sizeof(*d));                      \
                                                                                                   \
		if (d)                                                                             \
			return unwind ? pf_##name##_unwind_once(s, d, r)                           \
				      : pf_##name##_frame_once(s, d, r);                           \
		break;                                                                             \
	}
		PF_RUNTIMES(X)
#undef X
	}
	return unwind ? pf_runtime_unknown(s) : 1;
}
#endif

#include "trace_context.h"
#include "goroutine.h"
