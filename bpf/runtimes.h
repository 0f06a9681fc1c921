/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * runtimes: programs that run inside other programs (Python, Java, Lua), a row and a file each:
 * bpf/<name>.h has struct pf_<name>, what user space tells it of a process, and with PF_WALKER its part
 * of the walk. Its other half is agent/node/runtime/<name>/. docs/adding-a-language.md.
 *
 * A runtime's code is told by the mapping that the frame at hand is in:
 * - an interpreter's loop is a file's: walked by the file's rules and shown as any native frame; then
 *   its runtime is asked, frame by frame, which functions of its program this loop runs;
 * - generated code is PF_MANAGED: its runtime unwinds it first, and is asked then.
 *
 * pf_<name>_unwind: makes ip, sp and bp those of the caller, as the rules do, by pf_caller(): 0, or
 *	pf_end(). Pushes nothing. w->exact says whether ip is where it stands (then w->regs are valid) or a
 *	return address. bp_lost and by_record are its to set, too. sp only grows: nothing else ends a cycle
 *	but PF_STEPS.
 * pf_<name>_frame: pushes the next frame, leaf first, with pf_push_runtime(): 0; 1: no more of this
 *	loop. w->first: the first of this frame at hand, of which frame_sp and frame_bp are still there.
 *	What does not fit into the stack any more may be pushed in vain: the walk ends by itself.
 * Kernels give a program and all that it calls 512 bytes of stack and 8 levels, of which two and 160
 * bytes are taken here. They get their data of this process and their state of this walk. They run in
 * bpf_loop's one step, so they loop over a few things at most; longer searches take several frames'
 * turns. What a walk can be made to read by hostile memory has a limit: it runs in an interrupt.
 */
#pragma once

#include "tables.h"

/* X(NAME, name) */
#define PF_RUNTIMES(X)                                                                             \
	X(PYTHON, python)                                                                          \
	X(JVM, jvm)                                                                                \
	X(LUA, lua)                                                                                \
	X(LUAJIT, luajit)                                                                          \
	X(PERFMAP, perfmap)

/*
 * What tells the call that a thread works on (context.h): data in pf_process.runtimes like theirs,
 * no code.
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

/* Nothing is known of the code at hand but that it may keep frame pointers. */
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

/* Index into the walk's and the process's runtimes of the one at hand. */
static __always_inline uint32_t pf_runtime_slot(const struct pf_walk *w)
{
	return ((w->runtime & 0xff) - 1) % PF_RUNTIMES_MAX;
}

/* size bytes that user space wrote for it; NULL: not there. */
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

/* Asks the runtime at hand: to unwind (true), or for its next frame. */
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

#include "context.h"
#include "goroutine.h"
