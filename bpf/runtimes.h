/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * runtimes: programs that run inside other programs (Python, Java, Lua). Each runtime has a row in
 * PF_RUNTIMES and a file. bpf/<name>.h has struct pf_<name>, the data that user space gives the
 * kernel about a process, and with PF_WALKER the runtime's part of the walk. The runtime's part in
 * the agent is agent/node/runtime/<name>/. docs/adding-a-language.md.
 *
 * The mapping of the current frame says whether the frame is a runtime's code:
 * - An interpreter's loop is code of a file. It is walked by the file's rules and shown as any
 *   native frame. Then pf_<name>_frame is called again and again, once for each function of the
 *   program that this loop runs.
 * - Generated code is PF_MANAGED. First pf_<name>_unwind is called, then pf_<name>_frame.
 *
 * pf_<name>_unwind: goes to the caller, as the rules do. Sets ip, sp and bp by pf_caller() and
 *	returns 0, or ends the walk by pf_end(). Pushes no frame. w->exact says whether ip is the
 *	current instruction (then w->regs are valid) or a return address. The function must set
 *	bp_lost and by_record, too. It must make sp grow: else only PF_STEPS would end a cycle.
 * pf_<name>_frame: pushes the next frame, leaf first, by pf_push_runtime(), and returns 0. Returns
 *	1 if this loop has no more frames. w->first: this is the first call for the native frame,
 *	whose frame_sp and frame_bp are still valid. The function need not ask whether the stack
 *	has room: if it has none, the push does nothing, and the walk ends.
 * The kernel gives a program and all functions that it calls 512 bytes of stack and 8 levels of
 * calls. The callers of these two functions use 160 bytes and two levels. Both functions get the
 * runtime's data about the process, and the runtime's state in this walk. They run inside one step
 * of bpf_loop, so they may loop over a few things only; a longer search continues in the next
 * steps. The walk runs in an interrupt, so whatever hostile memory can make it read has a limit.
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
 * The ways in which a program publishes the ids of the request that a thread works on
 * (trace_context.h). Their data is in pf_process.runtimes like that of runtimes, but they show no
 * frames.
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

/* Goes to the caller of code of which nothing is known, except that it may keep frame pointers. */
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

/* Returns the index of the current runtime among those of the walk and the process. */
static __always_inline uint32_t pf_runtime_slot(const struct pf_walk *w)
{
	return ((w->runtime & 0xff) - 1) % PF_RUNTIMES_MAX;
}

/*
 * Returns the `size` bytes that user space wrote for a runtime at a reference; NULL: there are
 * none.
 */
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

/* Calls the current runtime: to unwind its code (unwind), or to push its next frame. */
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
